"""The functions that queries may call. The reference and the completion are generated from their docstrings.

`numeric` and `containers` define them; importing these modules fills the table.
"""

from . import containers, numeric
from .table import FUNCTIONS, QueryFunction, check_arguments, check_call

__all__ = ["FUNCTIONS", "QueryFunction", "check_arguments", "check_call", "containers", "numeric"]
