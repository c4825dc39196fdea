"""The containers: nested mappings of tuples, whoever made them."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sightglass.flax import sown
from sightglass.flax.forward import ordered

NAMES = st.text("abZ_019", min_size=1, max_size=4)
TREES = st.recursive(
    st.tuples(st.integers(0, 9)), lambda inner: st.dictionaries(NAMES, inner, max_size=4), max_leaves=12
).filter(lambda tree: isinstance(tree, dict))


@settings(deadline=None)
@given(TREES)
def test_the_order_of_names_is_one_and_survives_a_compiled_function(tree: dict[str, Any]) -> None:
    def names(tree: Any) -> Any:
        return [(name, names(value)) for name, value in tree.items()] if isinstance(tree, dict) else tree

    def backwards(tree: Any) -> Any:
        return {name: backwards(tree[name]) for name in reversed(tree)} if isinstance(tree, dict) else tree

    one = ordered(tree)
    assert one == tree
    assert names(one) == names(ordered(backwards(tree)))
    assert names(jax.tree.map(lambda leaf: leaf, one)) == names(one)


@settings(deadline=None)
@given(TREES, NAMES)
def test_sown_finds_every_leaf_of_its_key_once(tree: dict[str, Any], key: str) -> None:
    def count(tree: Any, name: str = "") -> int:
        return sum(count(v, n) for n, v in tree.items()) if isinstance(tree, dict) else int(name == key)

    found = sown(tree, key)
    assert len(found) == count(tree)
    for path, values in found.items():
        place: Any = tree
        for name in [name for name in path.split("/") if name]:
            place = place[name]
        assert place[key] == values


def test_collections_of_other_frameworks() -> None:
    array = np.ones(2)
    plain = {"layer10": {"x": [array, array]}, "layer9": {"x": array}}
    assert {path: len(values) for path, values in sown(plain, "x").items()} == {"layer9": 1, "layer10": 2}
    assert sown(plain, "y") == {}


def test_numbers_count_as_numbers() -> None:
    names = ["b10", "b2", "a", "b2_c10", "b2_c9", "10", "9"]
    assert list(ordered(dict.fromkeys(names, ()))) == ["9", "10", "a", "b2", "b2_c9", "b2_c10", "b10"]
    assert isinstance(ordered({"a": {}})["a"], OrderedDict)


@pytest.mark.parametrize("names", [{"1": (), "01": ()}, {"a1": (), "a01": ()}])
def test_names_that_are_equal_as_numbers_stay_two(names: Any) -> None:
    assert set(ordered(names)) == set(names)
