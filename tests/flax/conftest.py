"""Flax need not be there."""

from __future__ import annotations

import pytest

pytest.importorskip("flax")
