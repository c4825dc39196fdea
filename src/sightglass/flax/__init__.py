"""Figures from inside Flax models: sow values, capture them in validation, and draw them in a static `plot`."""

from sightglass.flax.forward import Meta as Meta
from sightglass.flax.forward import forward as forward
from sightglass.flax.forward import sown as sown
from sightglass.flax.mock import mock_intermediates as mock_intermediates
from sightglass.flax.module import Module as Module
from sightglass.flax.module import NNXModule as NNXModule
from sightglass.flax.module import draws as draws
