"""The plotly surface: interactive charts, as a widget in a notebook or as one HTML file."""

from .view import PlotlyView

__all__ = ["PlotlyView"]
