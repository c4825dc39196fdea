"""No query can hurt a run, whatever it asks, of whatever arrays; and what is cheap is answered as NumPy answers it."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profiles import examples
from tests.query.generated import Author, Unknown

import sightglass as sg
from sightglass.core.values import Histogram
from sightglass.query.functions import FUNCTIONS

TIMEOUT_S = 60.0

KNOWN = {
    "arrays": ["x", "matrix", "single", "half", "ints", "bytes", "mask", "complex", "empty", "swapped", "strided",
               "same", "readonly", "special"],
    "numbers": ["n", "loss"], "mappings": ["params"], "lists": ["names"], "texts": ["text"],
}  # fmt: skip


class Asked:
    """A run and a client in this process; each question is about an event of its own."""

    def __init__(self, run: sg.Run, client: sg.RemoteRun) -> None:
        self.run = run
        self.client = client
        self._events = (f"e{i}" for i in itertools.count())

    def event(self) -> str:
        return next(self._events)

    def ask(self, expression: str, observables: Mapping[str, Any]) -> tuple[Any, str]:
        """Ask, announce one event, and return the value and the error, one of which is empty."""
        event = self.event()
        try:
            stream = self.client.stream(f"on({event!r}).map(lambda b: {expression})")
        except sg.QueryError as error:
            return None, str(error)
        with stream:
            self.run.observe(event, **observables)
            return self.outcome(stream)

    def outcome(self, stream: sg.Stream) -> tuple[Any, str]:
        """Wait for what comes of one event."""
        self.run.flush(TIMEOUT_S)
        for _ in range(1_000):
            if stream.latest is not None:
                return stream.latest.value, ""
            counts = stream.statistics()
            if counts.n_errors or stream.error is not None:
                return None, str(counts.last_error or stream.error)
        raise AssertionError("neither a record nor an error")


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SIGHTGLASS_RUNTIME_DIR", str(tmp_path_factory.mktemp("r")))
        with sg.init("harm", dir=folder, budget=None) as run, sg.connect(run) as client:
            yield Asked(run, client)


def numbers(n: int, seed: int) -> np.ndarray:
    """Return quarters of small integers: their sums are exact in every order."""
    return np.random.default_rng(seed).integers(-8, 9, n) / 4


def event_of(n: int, seed: int) -> dict[str, Any]:
    """Return an event with arrays of n items, of every dtype and layout."""
    x = numbers(n, seed)
    readonly = numbers(n, seed + 1)
    readonly.flags.writeable = False
    special = numbers(n, seed + 2)
    special[: n // 2] = np.resize([math.nan, math.inf, -math.inf, 5e-324, 1e308], n // 2)
    return {
        "x": x, "matrix": numbers(n - n % 2, seed + 3).reshape(2, -1), "single": x.astype(np.float32),
        "half": x.astype(np.float16), "ints": (x * 4).astype(np.int64), "bytes": (x * 4).astype(np.uint8),
        "mask": x > 0, "complex": x + 1j * readonly, "empty": np.zeros((0, 3)), "swapped": x.astype(">f8"),
        "strided": numbers(3 * n, seed + 4)[::3], "same": np.broadcast_to(np.float64(0.25), (n,)), "readonly": readonly,
        "special": special, "n": 3, "loss": 0.25, "names": ["a", "b", "none"], "text": "a text",
        "params": {"layer1": x[: n // 2], "aw": readonly[: n // 3], "none": special[:9]},
    }  # fmt: skip


def check_same(got: Any, wanted: Any, n: int) -> None:
    """Check a value against NumPy's, within the digits of the coarsest dtype on the way."""
    if isinstance(wanted, dict):
        assert list(got) == list(wanted)
        got, wanted = list(got.values()), list(wanted.values())
    if isinstance(wanted, list | tuple):
        assert len(got) == len(wanted)
        for one, other in zip(got, wanted, strict=True):
            check_same(one, other, n)
    elif isinstance(wanted, str | Histogram):
        assert got == wanted
    else:
        a, b = np.asarray(got), np.asarray(wanted)
        assert a.shape == b.shape
        width = min(
            (x.dtype.itemsize // (1 + (x.dtype.kind == "c")) for x in (a, b) if x.dtype.kind in "fc"), default=8
        )
        tolerance = {2: 3e-2, 4: 1e-4}.get(width, 1e-7)
        np.testing.assert_allclose(a.astype(complex), b.astype(complex), rtol=tolerance, atol=tolerance * max(1, n))


def reference(compute: Callable[[Any], Any], observables: Mapping[str, Any]) -> Any:
    """Return what NumPy computes; `Unknown` if it computes nothing."""
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return compute(observables)
    except Exception:  # noqa: BLE001  what NumPy refuses, in any of its ways, the language may refuse as well
        raise Unknown from None


authors = st.tuples(st.integers(0, 2**32), st.integers(1, 9))


@settings(max_examples=examples(200))
@given(authors, st.integers(4, 2_000))
def test_what_is_cheap_is_answered_as_numpy_answers(asked: Asked, author: tuple[int, int], n: int) -> None:
    observables = event_of(n, 0)
    grown = Author(*author, KNOWN).expression()
    try:
        wanted = reference(grown.compute, observables)
    except Unknown:
        asked.ask(grown.text, observables)
        return
    got, error = asked.ask(grown.text, observables)
    assert not error or "levels deep" in error, f"{grown.text}: {error}"
    if not error:
        check_same(got, wanted, n)


def test_the_authors_use_the_whole_language() -> None:
    used: set[str] = set()
    for seed in range(2_000):
        author = Author(seed, Random(seed).randrange(1, 9), KNOWN)
        author.expression()
        used |= author.used
    assert used == set(FUNCTIONS)
