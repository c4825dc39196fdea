"""The functions that queries may call. The reference and the completion are generated from their docstrings.

Importing the modules fills the table. All compute in the array's own library, on its device, and never wait for a
result: they read shapes and dtypes, not values.
"""

from . import containers, elementwise, shapes, statistics
from .table import FUNCTIONS, Operation, QueryFunction, axis_for_dim, check_arguments, check_call, over_events

__all__ = [
    "FUNCTIONS", "Operation", "QueryFunction", "axis_for_dim", "check_arguments", "check_call", "over_events",
    "containers", "elementwise", "histograms", "linear", "ordering", "shapes", "statistics",
]  # fmt: skip
