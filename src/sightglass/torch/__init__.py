"""PyTorch: query a module's parameters, gradients and activations while it trains, see `watch`."""

from .distributed import agree as agree
from .watch import watch as watch
from .watched_module import Watched as Watched
