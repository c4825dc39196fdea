"""The command line. See `group` for how it speaks."""

from . import commands, figures, queries, recorded, ui
from .group import main

__all__ = ["commands", "figures", "main", "queries", "recorded", "ui"]
