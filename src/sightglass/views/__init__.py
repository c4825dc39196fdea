"""See: from streams to pictures, in the terminal and elsewhere."""

from .choose import VIEWS, Choice, Form
from .live_view import View
from .plotting import SURFACES, plot

__all__ = ["SURFACES", "VIEWS", "Choice", "Form", "View", "plot"]
