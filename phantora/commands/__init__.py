"""One verb per file; each has `register(app)`."""
