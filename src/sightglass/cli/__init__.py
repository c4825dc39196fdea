"""The command line. See `group` for how it speaks."""

from . import acting, asking, files
from .group import main

__all__ = ["acting", "asking", "files", "main"]
