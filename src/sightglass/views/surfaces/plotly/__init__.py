"""Plotly: charts that zoom and tell values, as a widget in a notebook, or as one file of HTML."""

from .view import PlotlyView

__all__ = ["PlotlyView"]
