"""The command line. See `group` for its output and its exit codes."""

from . import commands, figures, hub, queries, recorded, top, ui
from .group import main

__all__ = ["commands", "figures", "hub", "main", "queries", "recorded", "top", "ui"]
