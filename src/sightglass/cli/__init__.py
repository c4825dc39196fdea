"""The command line. See `group` for how it speaks."""

from . import acting, asking, files, ui
from .group import main

__all__ = ["acting", "asking", "files", "main", "ui"]
