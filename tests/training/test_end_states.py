"""How a run says that it ended, and why: by itself, by an error, by Ctrl-C, by `sys.exit`, by a client."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

import sightglass as sg
from sightglass.storage.run_file import read


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (None, "ended"),
        (SystemExit(), "ended"),
        (SystemExit(0), "ended"),
        (SystemExit(3), "failed"),
        (ValueError("on purpose"), "failed"),
        (KeyboardInterrupt(), "terminated"),
    ],
    ids=repr,
)
def test_the_files_say_how_a_block_ended(tmp_path: Path, error: BaseException | None, state: str) -> None:
    with contextlib.suppress(BaseException), sg.init("job", dir=tmp_path) as run:
        run.log({"a": 1})
        if error is not None:
            raise error
    (directory,) = tmp_path.iterdir()
    assert read(directory / "run.json").state == state


def read_data() -> None:
    raise OSError("postgres://ada:lovelace@db does not answer")


def test_an_exception_is_told_with_its_place_and_without_secrets(tmp_path: Path) -> None:
    with contextlib.suppress(OSError), sg.init("job", dir=tmp_path) as run:
        run.log({"a": 1})
        read_data()
    with sg.open(run.directory) as opened:
        description = opened.describe()
    ending = description.ending
    assert ending.error == "OSError: postgres://ada:[redacted]@db does not answer"
    assert [frame.function for frame in ending.frames] == [
        "test_an_exception_is_told_with_its_place_and_without_secrets", "read_data"
    ]  # fmt: skip
    why = "OSError: postgres://ada:[redacted]@db does not answer (test_end_states.py, line {}, in read_data)"
    why = why.format(read_data.__code__.co_firstlineno + 1)
    assert str(ending) == why
    assert f": {why}\n" in f"{description}\n"
    (info,) = sg.runs(tmp_path)
    assert (info.state, str(info.ending)) == ("failed", why)


class BadError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no message")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (BadError(), "BadError"),
        (KeyError("lr"), "KeyError: 'lr'"),
        (sg.QueryError("no such event"), "QueryError: no such event"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (SystemExit(3), "SystemExit: 3"),
        (ValueError("x" * 10_000), "ValueError: xxx"),
        (ValueError("two\nlines \x1b[31m"), "ValueError: two"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_an_exception_says_is_bounded_and_visible(tmp_path: Path, error: BaseException, said: str) -> None:
    with contextlib.suppress(BaseException), sg.init("job", dir=tmp_path) as run:
        run.log({"a": 1})
        raise error
    (info,) = sg.runs(tmp_path)
    assert str(info.ending).startswith(said)
    assert len(info.ending.error) <= 1_000
    assert "\x1b" not in str(info.ending)


def test_a_run_that_ends_by_itself_or_is_stopped(tmp_path: Path) -> None:
    for stopped in (False, True):
        with sg.init("job", dir=tmp_path / str(stopped)) as run, sg.connect(run) as client:
            run.log({"a": 1})
            if stopped:
                client.sent_by("ada").stop()  # on the run's own thread: it waits for the next event
                run.observe("batch")
                assert run.stopping
                assert str(client.describe().ending).startswith("stopped by ada (")
        (info,) = sg.runs(tmp_path / str(stopped))
        assert info.state == "ended"
        assert str(info.ending).startswith("stopped by ada (" if stopped else "")
        assert bool(str(info.ending)) == stopped


def test_what_is_logged_after_the_end_is_warned_of_once(tmp_path: Path) -> None:
    with sg.init("job", dir=tmp_path) as run:
        run.log({"a": 1})
    with pytest.warns(RuntimeWarning, match="'job' has ended"):
        run.log({"a": 2})
    run.log({"a": 3})  # a second warning would be an error
    run.observe("batch", loss=1.0)  # which is recorded only if somebody asks
    assert sg.open(run.directory).series("a").n == 1
