"""Expression trees from the text of a lambda."""

from __future__ import annotations

from sightglass.query import expressions as e
from sightglass.query.parser import parse


def lambda_of(text: str) -> e.Lambda:
    """Read a lambda of one argument, or of an accumulator and a value."""
    if "," in text.partition(":")[0]:
        return parse(f"on('event').reduce({text}, 0.0)").stages[0].args[0][1]
    return parse(f"on('event').map({text})").stages[0].fn
