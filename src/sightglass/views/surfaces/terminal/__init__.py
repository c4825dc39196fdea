"""The terminal surface: live charts in characters."""

from .stage import stage_of
from .view import TerminalDrawing, TerminalView

__all__ = ["TerminalDrawing", "TerminalView", "stage_of"]
