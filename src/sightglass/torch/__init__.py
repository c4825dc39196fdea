"""Looking inside a PyTorch module while it trains: `watch` it, and ask from anywhere."""

from .distributed import agree as agree
from .watch import watch as watch
from .watched_module import Watched as Watched
