"""The command line. See `group` for how it speaks."""

from . import acting, asking, figures, files, ui
from .group import main

__all__ = ["acting", "asking", "figures", "files", "main", "ui"]
