"""The functions that queries may call, one docstring each: reference and completion are made from them.

They are written in `numeric` and `containers`; importing those fills the table.
"""

from . import containers, numeric
from .table import FUNCTIONS, QueryFunction, check_arguments, check_call

__all__ = ["FUNCTIONS", "QueryFunction", "check_arguments", "check_call", "containers", "numeric"]
