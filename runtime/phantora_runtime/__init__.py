"""What runs beside and inside the ranks: supervisor, zygote, and the small Python shims around torch.

Standard library only, Python >= 3.10: this package also runs inside a user's own image.
"""

__version__ = "0.1.0"
