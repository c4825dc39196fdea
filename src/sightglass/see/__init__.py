"""See: from streams to pictures, in the terminal and elsewhere."""

from .choose import VIEWS, Choice, Form
from .surface import SURFACES, View, plot

__all__ = ["SURFACES", "VIEWS", "Choice", "Form", "View", "plot"]
