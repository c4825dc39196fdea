"""The command line. See `main` for how it speaks."""

from . import acting, asking, files
from .main import main

__all__ = ["acting", "asking", "files", "main"]
