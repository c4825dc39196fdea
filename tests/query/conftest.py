"""Examples may take their time on a busy machine: what counts is what they find."""

from __future__ import annotations

import pytest

from sightglass.query.costs import MODEL, CostModel


@pytest.fixture(autouse=True)
def usual_prices(monkeypatch):
    """Forget how fast the machine was for other tests: an operation that was slow once is dear from then on."""
    for name, value in vars(CostModel()).items():
        monkeypatch.setattr(MODEL, name, value)
