"""Laws of slices as text and of the tables they cut: NumPy's own behaviour is the reference."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from sightglass.core.errors import QueryError, QuerySyntaxError, RefusedQueryError
from sightglass.storage.tensors.slices import cells, make_table, parse_index, resolve, restrict, table, write_index
from sightglass.storage.tensors.statistics import statistics

bounds = st.none() | st.integers(-8, 8) | st.integers(-(2**63), 2**63 - 1)
steps = st.none() | st.integers(-4, 4).filter(bool) | st.integers(-(2**63), 2**63 - 1).filter(bool)
slices = st.builds(slice, bounds, bounds, steps)
entries = st.integers(-6, 6) | slices
shapes = st.lists(st.integers(0, 5), max_size=5).map(tuple)


@st.composite
def indices(draw, entry=entries):
    index = draw(st.lists(entry, max_size=5))
    if draw(st.booleans()):
        index.insert(draw(st.integers(0, len(index))), ...)
    return tuple(index)


@st.composite
def blanked(draw, index):
    """Write an index with blanks anywhere between its tokens, with or without brackets and a comma at the end."""
    blank = st.sampled_from(["", "", " ", "  ", "\t", "\n"])
    text = write_index(index)
    tokens = "".join(
        f"{draw(blank)}{c}{draw(blank)}" if c in "[]:,-" else c for c in text.replace(" ", "").replace("...", "\0")
    ).replace("\0", f"{draw(blank)}...{draw(blank)}")
    if draw(st.booleans()):
        tokens = tokens.replace("[", "").replace("]", "")
    if index and draw(st.booleans()):
        tokens = f"{tokens}," if "]" not in tokens else tokens.replace("]", ",]")
    return tokens


def numbered(shape):
    return np.arange(math.prod(shape)).reshape(shape)


@given(indices(st.integers(-(2**63), 2**63 - 1) | slices))
def test_written_indices_parse_back(index):
    assert parse_index(write_index(index)) == index


@given(st.data(), indices())
def test_blanks_and_brackets_do_not_matter(data, index):
    assert parse_index(data.draw(blanked(index))) == index


@given(indices(), shapes)
@example((slice(None, None, -1),), (3,))
@example((slice(-9, -9, -1),), (3,))
@example((), ())
def test_indices_are_numpys(index, shape):
    array = numbered(shape)
    try:
        expected = array[index]
    except IndexError:
        for form in (index, write_index(index)):
            with pytest.raises(QueryError):
                resolve(form, shape)
        return
    resolved = resolve(write_index(index), shape)
    assert resolved == resolve(index, shape)
    assert len(resolved) == len(shape)
    np.testing.assert_array_equal(array[resolved], expected)
    for entry, n in zip(resolved, shape, strict=True):
        if isinstance(entry, int):
            assert 0 <= entry < n
        else:
            assert 0 <= entry.start <= n
            assert entry.stop is None or 0 <= entry.stop <= n
            assert entry.step is not None


@given(indices(), shapes)
def test_resolving_again_changes_nothing(index, shape):
    try:
        resolved = resolve(index, shape)
    except QueryError:
        return
    assert resolve(resolved, shape) == resolved
    assert restrict(index, shape) == resolved


@given(indices(), shapes)
def test_a_restricted_index_always_fits(index, shape):
    restricted = restrict(index, shape)
    assert resolve(restricted, shape) == restricted
    numbered(shape)[restricted]


def test_a_restricted_index_is_moved_into_the_shape():
    assert restrict("[7, -9, 1:9, 0]", (3, 4, 5)) == (2, 0, slice(1, 5, 1))
    assert restrict("[0, ..., 1]", (4,)) == (0,)
    assert restrict("[2]", (0, 2)) == (slice(0, 0, 1), slice(0, 2, 1))


@given(indices(), shapes)
def test_a_table_shows_what_numpy_shows(index, shape):
    array = numbered(shape)
    try:
        expected = array[index]
    except IndexError:
        assume(False)
    if expected.ndim > 2:
        with pytest.raises(RefusedQueryError):
            table(array, index)
        return
    found = table(array, write_index(index))
    np.testing.assert_array_equal(found.values, expected)
    assert found.shape == shape
    assert repr(found.statistics) == repr(statistics(expected))  # NaN equals NaN in it
    shown = (found.rows, found.columns)[: expected.ndim]
    assert tuple(map(len, shown)) == expected.shape
    assert not any(map(len, (found.rows, found.columns)[expected.ndim :]))
    for place, value in np.ndenumerate(found.values):
        numbers = iter(shown[i][p] for i, p in enumerate(place))
        assert array[tuple(next(numbers) if isinstance(entry, slice) else entry for entry in found.index)] == value


def test_a_table_of_a_part_is_the_table_of_the_whole():
    array = numbered((4, 5, 6))
    index = cells("[-1, ::2, 3:]", array.shape)
    whole, part = table(array, "[-1, ::2, 3:]"), make_table(array[index], index, array.shape)
    np.testing.assert_array_equal(whole.values, part.values)
    np.testing.assert_array_equal(whole.rows, part.rows)
    np.testing.assert_array_equal(whole.columns, [3, 4, 5])
    assert (whole.shape, whole.index, whole.statistics) == (part.shape, part.index, part.statistics)


def test_cells_that_are_not_finite_are_values():
    array = np.array([[np.nan, np.inf], [-np.inf, 1]], np.float32)
    found = table(array, "[0, 0]")
    assert found.values.shape == ()
    assert found.values.dtype == np.float32
    assert np.isnan(found.values)
    assert found.statistics.n_nan == 1
    np.testing.assert_array_equal(table(array).values, array)


def test_a_table_does_not_keep_the_tensor_in_memory():
    array = np.zeros((3, 3))
    assert not np.shares_memory(table(array, "[0]").values, array)


def test_extended_types_stay():
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    found = table(np.ones((2, 2), bfloat16), "[0, 0]")
    assert found.values.dtype == bfloat16
    assert found.statistics.max == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[0, x]", "got 'x'\n  [0, x]\n      ^"),
        ("0, 1 2", "is missing here\n  0, 1 2\n      ^"),
        ("0:1 2:3", "is missing here\n  0:1 2:3\n     ^"),
        ("[0, 1.0]", "an integer, got 1.0\n  [0, 1.0]\n      ^"),
        ("[1e3]", "an integer, got 1e3\n  [1e3]\n   ^"),
        ("[nan]", "an integer, got nan\n  [nan]\n   ^"),
        ("[True]", "an integer, got True: write 1\n  [True]\n   ^"),
        ("[:, False]", "an integer, got False: write 0\n  [:, False]\n      ^"),
        ("[:, 1::0]", "cannot be 0\n  [:, 1::0]\n         ^"),
        ("[1:2:3:4]", "as in 0:10:2\n  [1:2:3:4]\n        ^"),
        ("[..., 0, ...]", "one '...': write ':'\n  [..., 0, ...]\n           ^"),
        ("[None, 0]", "leave it out\n  [None, 0]\n   ^"),
        ("[np.newaxis]", "leave it out\n  [np.newaxis]\n   ^"),
        ("[0, [1, 2]]", "such as 2:5\n  [0, [1, 2]]\n      ^"),
        ("0, [1, 2]", "such as 2:5\n  0, [1, 2]\n     ^"),
        (" [0, 1", "is never closed\n   [0, 1\n   ^"),
        ("[", "is never closed\n  [\n  ^"),
        ("0, 1]", "was never opened\n  0, 1]\n      ^"),
        ("[0] [1]", "as in [0, 1]\n  [0] [1]\n      ^"),
        ("[0]]", "as in [0, 1]\n  [0]]\n     ^"),
        ("[0, , 1]", "before the comma\n  [0, , 1]\n      ^"),
        ("[,]", "before the comma\n  [,]\n   ^"),
        ("[9223372036854775808]", "64 bits\n  [9223372036854775808]\n   ^"),
        ("[:-9223372036854775809]", "64 bits\n  [:-9223372036854775809]\n    ^"),
        ("٣", "got '٣'\n  ٣\n  ^"),
    ],
)  # fmt: skip
def test_syntax_errors_show_the_place(text, message):
    with pytest.raises(QuerySyntaxError) as caught:
        parse_index(text)
    assert str(caught.value).endswith(message)
    assert caught.value.text == text


@given(st.text("[]0123456789:,.-+ enTrueNa", max_size=20))
def test_any_text_is_read_or_refused(text):
    try:
        index = parse_index(text)
    except QuerySyntaxError:
        return
    assert parse_index(write_index(index)) == index


def test_thousands_of_digits_are_refused_quickly():
    with pytest.raises(QuerySyntaxError, match="64 bits"):
        parse_index("9" * 100_000)
    assert parse_index("0" * 100_000 + "7") == (7,)


@pytest.mark.parametrize("entry", [True, np.True_, None, 1.0, [0], "x", np.array([0, 1]), slice(0, 1.5), (0, (1,))])
def test_wrong_entries_are_refused(entry):
    index = entry if isinstance(entry, tuple) else (entry,)
    with pytest.raises(QuerySyntaxError, match=r"2:5.*'...'"):
        resolve(index, (3, 3))


def test_wrong_built_indices_are_refused():
    with pytest.raises(QuerySyntaxError, match=r"slice\(None, None, 0\)"):
        resolve(slice(None, None, 0), (3,))
    with pytest.raises(QuerySyntaxError, match=r"one '\.\.\.'"):
        resolve((..., ...), (3,))
    with pytest.raises(QuerySyntaxError, match=r"64 bits.*20001 bits"):
        resolve(2**20_000, (3,))


def test_numpys_integers_are_integers():
    assert resolve((np.int8(-1), slice(np.uint64(1), None)), (3, 4)) == (2, slice(1, 4, 1))


@pytest.mark.parametrize(
    ("index", "shape", "message"),
    [
        ("[0, 4]", (3, 4), "dimension 1 of shape (3, 4): use -4 to 3\n  [0, 4]\n      ^"),
        ((..., -4), (2, 3), "dimension 1 of shape (2, 3): use -3 to 2"),
        ("0", (0,), "shape (0,): it is empty\n  0\n  ^"),
        ("[0, ..., 1, 2]", (3, 4),
         "shape (3, 4), which has 2 dimensions\n  [0, ..., 1, 2]\n              ^"),
        (":", (), "shape (), which has 0 dimensions\n  :\n  ^"),
    ],
)  # fmt: skip
def test_indices_that_do_not_fit_are_explained(index, shape, message):
    with pytest.raises(QueryError) as caught:
        resolve(index, shape)
    assert str(caught.value).endswith(message)


@pytest.mark.parametrize(
    ("index", "shape", "message"),
    [
        ("", (3, 4, 5), "dimension 0 an integer, as in [0, :, :]"),
        ("[1:, 1]", (3, 4, 5, 6, 7), "dimensions 0, 2 an integer, as in [0, 1, 0, :, :]"),
        ("", (0, 4, 5), "dimension 1 an integer, as in [:, 0, :]"),
        ("[:, 1:]", (1000, 1001), "narrow dimension 0 or 1"),
    ],
)  # fmt: skip
def test_parts_that_are_not_tables_are_refused(index, shape, message):
    with pytest.raises(RefusedQueryError) as caught:
        cells(index, shape)
    assert str(caught.value).endswith(message)
    with pytest.raises(RefusedQueryError):
        table(np.broadcast_to(np.float32(0), shape), index)


def test_the_limit_can_be_moved():
    assert table(np.zeros(11), ":10", max_cells=10).values.size == 10
    with pytest.raises(RefusedQueryError, match="10 values, but 11"):
        table(np.zeros(11), max_cells=10)
