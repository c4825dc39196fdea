"""Examples may take their time on a busy machine: what counts is what they find."""

from __future__ import annotations

import pytest

from sightglass.query.costs import MODEL


@pytest.fixture(autouse=True)
def usual_prices(monkeypatch):
    """Forget what operations took in other tests: one that was slow once makes all prices of its name larger."""
    monkeypatch.setattr(MODEL, "_learned", {})
