"""The command line. See `group` for its output and its exit codes."""

from . import alerts, commands, figures, hub, queries, recorded, top, ui
from .group import main

__all__ = ["alerts", "commands", "figures", "hub", "main", "queries", "recorded", "top", "ui"]
