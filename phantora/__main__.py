"""`python -m phantora`."""

from phantora.cli import main

if __name__ == "__main__":
    main()
