"""The terminal surface: live charts in characters."""

from .live_display import live_display_of
from .view import TerminalDrawing, TerminalView

__all__ = ["TerminalDrawing", "TerminalView", "live_display_of"]
