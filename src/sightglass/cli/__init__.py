"""The command line. See `group` for its output and its exit codes."""

from . import commands, figures, hub, links, queries, recorded, top, ui
from .group import main

__all__ = ["commands", "figures", "hub", "links", "main", "queries", "recorded", "top", "ui"]
