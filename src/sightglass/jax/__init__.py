"""Logging as a transformation of JAX programs: `log` anywhere, then `spool`, `tap` or `strip` the function."""

from sightglass.core.errors import LogError as LogError
from sightglass.jax import attach as attach
from sightglass.jax import batching as batching
from sightglass.jax.agree import agree as agree
from sightglass.jax.live import live as live
from sightglass.jax.logdict import logdict as logdict
from sightglass.jax.logdict import stepdict as stepdict
from sightglass.jax.primitive import log as log
from sightglass.jax.spool import spool as spool
from sightglass.jax.strip import strip as strip
from sightglass.jax.tap import TapStatistics as TapStatistics
from sightglass.jax.tap import tap as tap
