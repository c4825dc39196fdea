"""The Matplotlib surface: live charts in a window, or in a file."""

from .view import MatplotlibView

__all__ = ["MatplotlibView"]
