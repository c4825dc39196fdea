"""The command line. See `group` for its output and its exit codes."""

from . import commands, figures, hub, queries, recorded, top, ui, views
from .group import main

__all__ = ["annotate", "commands", "figures", "hub", "links", "main", "queries", "recorded", "top", "ui", "views"]
