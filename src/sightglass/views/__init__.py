"""See: from streams to pictures, in the terminal and elsewhere."""

from .choose import VIEWS, Choice, Form
from .plotting import SURFACES, View, plot

__all__ = ["SURFACES", "VIEWS", "Choice", "Form", "View", "plot"]
