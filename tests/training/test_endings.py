"""The end of a process closes every run, whatever becomes of the others."""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import sightglass as sg
from sightglass.training import process_runs


class Broken:
    """A sink that fails at its end."""

    def write(self, records: object) -> None:
        pass

    def flush(self, timeout_s: float) -> None:
        pass

    def close(self, timeout_s: float) -> None:
        raise RuntimeError("broken")


def unwritable(patch: pytest.MonkeyPatch) -> sg.Run:
    return sg.init("bad", dir=os.devnull + "/nope", record=["e.v"])


def broken_mirror(patch: pytest.MonkeyPatch) -> sg.Run:
    return sg.init("bad", mirror=Broken())


def broken_figure(patch: pytest.MonkeyPatch) -> sg.Run:
    run = sg.init("bad")
    patch.setattr(run._figures, "close", raising(RuntimeError("no figure")))
    return run


def interrupted(patch: pytest.MonkeyPatch) -> sg.Run:
    run = sg.init("bad")
    patch.setattr(run._wiring, "close", raising(KeyboardInterrupt()))
    return run


def raising(error: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


KINDS = (unwritable, broken_mirror, broken_figure, interrupted)


@pytest.fixture
def patch() -> Iterator[pytest.MonkeyPatch]:
    """Keep the order of the runs, and close those that a test interrupted."""
    live = Ordered()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process_runs, "_live", live)
        yield patch
    for run in live:
        run.close()


class Ordered(list):
    """A list that runs are added to as to a set."""

    add = list.append


@pytest.mark.parametrize(
    "order",
    [
        *itertools.product(KINDS, ["good"]),
        *itertools.product(["good"], KINDS),
        *(order for order in itertools.permutations(["good", *KINDS], 3) if "good" in order),
    ],
)
@pytest.mark.parametrize("action", ["ignore", "error"])
def test_a_run_that_fails_to_close_costs_no_other_run(
    order: tuple[str | Callable[[pytest.MonkeyPatch], sg.Run], ...], action: str, patch: pytest.MonkeyPatch
) -> None:
    good = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runs = []
        for kind in order:
            runs.append(sg.init("good", record=["e.v"]) if isinstance(kind, str) else kind(patch))
            good = runs[-1] if isinstance(kind, str) else good
        for i in range(5):
            for run in runs:
                run.observe("e", v=i)
                run.log({"q": i})
        warnings.simplefilter(action)
        try:
            process_runs._close_all()
        except BaseException as failures:  # noqa: BLE001
            told = failures
        else:
            told = None
    assert good is not None
    with sg.open(Path(good.directory)) as kept:
        assert {tag: kept.series(tag).n for tag in ("e.v", "q")} == {"e.v": 5, "q": 5}
    expected = {broken_figure: RuntimeError, interrupted: KeyboardInterrupt}
    for kind in set(order) & set(expected):
        assert isinstance(told, BaseExceptionGroup)
        assert told.subgroup(expected[kind]) is not None


def test_a_third_live_run_of_one_name_is_warned_of(patch, tmp_path):
    with sg.init("job", dir=tmp_path), sg.init("job", dir=tmp_path), sg.init("other", dir=tmp_path):
        with pytest.warns(RuntimeWarning, match="3 runs named 'job'"):
            run = sg.init("job", dir=tmp_path)
        run.close()
    with sg.init("job", dir=tmp_path), sg.init("job", dir=tmp_path):
        pass  # what has ended does not count; a warning would be an error
