"""Logging as a transformation of JAX programs: `log` anywhere, then `spool`, `tap` or `strip` the function."""

from sightglass.core.errors import LogError as LogError
from sightglass.core.errors import MissingExtraError

try:
    import jax as _jax  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingExtraError("jax", extra="jax", purpose="sightglass.jax") from error

from sightglass.jax import rules as _rules
from sightglass.jax.initial import initial as initial
from sightglass.jax.logs.logdict import logdict as logdict
from sightglass.jax.logs.logdict import stepdict as stepdict

# Importing this registers the event "jax".
from sightglass.jax.ondemand import attach as _attach  # noqa: F401
from sightglass.jax.ondemand.chunked import LoopState as LoopState
from sightglass.jax.ondemand.chunked import chunked as chunked
from sightglass.jax.ondemand.live import agree as agree
from sightglass.jax.ondemand.live import live as live
from sightglass.jax.program.control import control as control
from sightglass.jax.program.primitive import log as log
from sightglass.jax.reducers.accumulate import every as every
from sightglass.jax.reducers.accumulate import histogram as histogram
from sightglass.jax.reducers.accumulate import last_k as last_k
from sightglass.jax.saved import load as load
from sightglass.jax.saved import save as save
from sightglass.jax.spool import spool as spool
from sightglass.jax.spool import strip as strip
from sightglass.jax.tap import tap as tap

# The rules for logs in loops and branches that JAX transforms.
_rules.install()
