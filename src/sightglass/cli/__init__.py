"""The command line. See `group` for its output and its exit codes."""

from . import commands, figures, queries, recorded, ui
from .group import main

__all__ = ["commands", "figures", "main", "queries", "recorded", "ui"]
