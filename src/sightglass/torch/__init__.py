"""PyTorch: query a module's parameters, gradients and activations while it trains, see `watch`."""

from sightglass.core.errors import MissingExtraError

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingExtraError("torch", extra="torch", purpose="sightglass.torch") from error

from .watch import agree as agree
from .watch import watch as watch
from .watched_module import Watched as Watched
