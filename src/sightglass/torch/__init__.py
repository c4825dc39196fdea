"""Looking inside a PyTorch module while it trains: `watch` it, and ask from anywhere."""

from .ranks import agree as agree
from .watch import watch as watch
from .watched import Watched as Watched
