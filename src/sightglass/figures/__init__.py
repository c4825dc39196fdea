"""Figures of a training, drawn outside of its loop: the plotter, and the theme."""

from sightglass.storage.event_log import TensorBoard
from sightglass.views.theme import apply_theme, figure_size, label_panels, theme

from .plotter import Plotter, no_plot

__all__ = ["Plotter", "TensorBoard", "apply_theme", "figure_size", "label_panels", "no_plot", "theme"]
