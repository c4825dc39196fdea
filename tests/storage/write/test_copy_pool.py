"""Copies into memory that is used again: never while somebody still looks at it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightglass.core.values import Histogram, Image, Images, Tensor
from sightglass.storage.write.copy_pool import STAGED_BYTES, CopyPool

LARGE = STAGED_BYTES // 8 + 1


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 3 * LARGE), st.booleans()), max_size=60),
    st.sampled_from([0, 2**18, 2**30]),
)
def test_a_copy_holds_as_long_as_anything_of_it_is_held(plan: list[tuple[int, int, bool]], most: int) -> None:
    """Each place holds a copy, or only a view of its bytes, until it is overwritten by the next."""
    staging = CopyPool(max_free_bytes=most)
    held: dict[int, tuple[Any, Any]] = {}
    for i, (place, size, only_bytes) in enumerate(plan):
        array = np.full(size, i, np.int64)
        copy = staging.take(array)
        array[:] = -1
        held[place] = (memoryview(copy.reshape(-1).view(np.uint8)) if only_bytes else copy[: size // 2 + 1], i)
        del copy
        for view, value in held.values():
            assert (np.frombuffer(view, np.int64) == value).all()
        assert staging.n_free_bytes <= most


def test_a_buffer_is_used_again() -> None:
    staging = CopyPool()
    array = np.arange(2 * LARGE)
    copies = [staging.take(array) for _ in range(3)]
    places = {copy.ctypes.data for copy in copies}
    assert (len(places), staging.n_free_bytes) == (3, 0)
    del copies
    assert staging.n_free_bytes == 3 * 4 * STAGED_BYTES
    again = [staging.take(array[1:]) for _ in range(3)]
    assert {copy.ctypes.data for copy in again} == places
    assert not staging.n_free_bytes


@pytest.mark.parametrize(
    "array",
    [
        np.arange(4 * LARGE).reshape(4, -1)[::2, ::-1],
        np.asfortranarray(np.ones((300, 100))),
        np.arange(LARGE, dtype=">i8"),
        np.zeros((0, 5), np.float32),
        np.ones(LARGE, np.complex128),
        np.ones(16 * LARGE, bool),
        np.array([{}] * LARGE),
        np.ma.masked_array(np.ones(LARGE), mask=False),
    ],
)
def test_copies_are_equal_and_in_order(array: Any) -> None:
    copy = CopyPool().take(array)
    assert (copy.dtype, copy.shape) == (array.dtype, array.shape)
    assert copy.flags.c_contiguous or not array.nbytes or array.dtype.hasobject
    assert not np.shares_memory(copy, array)
    assert (copy == array).all()


def test_scalars_are_read_and_containers_copied() -> None:
    staging = CopyPool()
    array = np.ones(LARGE)
    assert type(staging.take(np.array(2, np.float32))) is np.float32
    held: Any = [
        staging.take(Image(array.reshape(1, -1), "c")),
        staging.take(Images(array.reshape(1, 1, -1), ("d",))),
        staging.take(Tensor(array)),
        staging.take([array, {"a": array}]),
        staging.take(Histogram(array)),
        staging.take(Histogram([1.0, 2.0])),
    ]
    array[:] = 0
    assert (held[0].caption, held[1].captions) == ("c", ("d",))
    assert all(item.value.min() == 1 for item in held[:3])
    assert held[3][0].min() == held[3][1]["a"].min() == 1
    assert held[4].edges[0] == 0.5
    assert held[5].total == 2
    binned = Histogram.from_counts([1], [0, 1])
    assert staging.take(binned) is binned


def test_tensors_on_the_host_are_staged() -> None:
    torch = pytest.importorskip("torch")
    staging = CopyPool()
    tensor = torch.arange(2 * LARGE, dtype=torch.float64).requires_grad_()
    copy = staging.take(tensor)
    with torch.no_grad():
        tensor.zero_()
    assert isinstance(copy, np.ndarray)
    assert (copy == np.arange(2 * LARGE)).all()
    del copy
    assert staging.n_free_bytes == 4 * STAGED_BYTES
    assert staging.take(torch.tensor(3, dtype=torch.int32)) == 3
    half = torch.ones(5, dtype=torch.bfloat16)
    kept = staging.take(half)
    half.zero_()
    assert kept.dtype == torch.bfloat16
    assert kept.sum() == 5
