"""The terminal surface: live charts in characters."""

from .stage import stage_of
from .view import Drawing, TerminalView

__all__ = ["Drawing", "TerminalView", "stage_of"]
