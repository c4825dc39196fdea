"""The words of messages: all of them in one table, some as they are shown, and none pinned by other tests.

`python -m tests.meta.messages` writes the table. Read what changed in it as a user would.
"""

from __future__ import annotations

import ast
import difflib
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from bench import code
from tests.meta import messages, pinned

import sightglass as sg
from sightglass.query.costs import CostModel
from sightglass.query.evaluation import Evaluation
from sightglass.query.functions import FUNCTIONS
from sightglass.query.meter import MAX_BYTES, Meter
from sightglass.query.parser import parse
from sightglass.storage.tensors.slices import parse_index
from sightglass.training.controls import Control

# The table


@pytest.mark.smoke
def test_the_table_has_the_messages_of_the_package() -> None:
    kept, found = messages.TABLE.read_text("utf-8"), messages.table(tree for _, tree in code.trees())
    changed = list(difflib.unified_diff(kept.splitlines(), found.splitlines(), "messages.txt", "src", "", "", 0, ""))
    assert not changed, "\n".join(["Run `python -m tests.meta.messages`, and read what it changes:", *changed])


SOURCE = '''
"""A docstring is documentation."""

@option("--out", help="Where the text of the option goes.")
def refuse(name: str) -> NameError:
    return NameError(f"Expected a name such as 'a', got {name!r}")

def f(self, x, where=""):
    if x < 0:
        raise ValueError(f"Expected a number from {LEAST:,}, got {x}" + where)
    warn_user(f"The number {self.x.y} is {round(x)}")
    raise refuse("not so, " + x if x else "it is empty")
    self.note = f"Waiting for {'the first one of all' if x else ''} in " f"{x:.3g} s"
    sort(key="x", by=["one", "two words"], css="<b>three words here</b>")
    raise unknown("observable", x, known, where=f"at event {x!r}")
'''


def test_each_way_of_a_message_is_found() -> None:
    assert messages.table([ast.parse(SOURCE)]) == messages.HEAD + "\n" + "\n".join(
        (
            "NameError",
            "  Expected a name such as 'a', got {name!r}",
            "  it is empty",
            "  not so, {x}",
            "",
            "RuntimeWarning",
            "  The number {y} is {…}",
            "",
            "UnknownNameError",
            "  at event {x!r}",
            "",
            "ValueError",
            "  Expected a number from {LEAST}, got {x}{where}",
            "",
            messages.OTHER,
            "  Waiting for {…} in {x} s",
            "  the first one of all",
            "",
        )
    )


@pytest.mark.parametrize("changed", ["Expected a number", "not so, ", "Waiting for", "at event", "The number"])
def test_a_change_of_any_message_changes_the_table_and_a_move_does_not(changed: str) -> None:
    table = messages.table([ast.parse(SOURCE)])
    assert messages.table([ast.parse(SOURCE.replace(changed, f"{changed} then "))]) != table
    first, second = SOURCE.split("\ndef f")
    assert messages.table([ast.parse(f"x = 1\n\ndef f{second}"), ast.parse(first)]) == table


# As they are shown


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """Yield a live run that can be reached over TCP, clients of it, and streams that have records."""
    folder = tmp_path_factory.mktemp("at")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SIGHTGLASS_RUNTIME_DIR", str(folder / "live"))
        (folder / "live").mkdir(mode=0o700)
        run = sg.init("mnist", budget=None, dir=folder, record=["batch.loss"], listen="tcp://127.0.0.1:0")
        run.control("lr", 0.1)
        with run, sg.connect(run) as client, sg.connect(run.viewer_file) as viewer:
            number, matrix, bad = (client.stream(query) for query in ("batch.loss", "batch.w", "batch.los"))
            for _ in range(5):
                run.observe("batch", step=2, loss=1.0, w=np.ones((2, 3)))
            number.wait(5)
            matrix.wait(5)
            yield SimpleNamespace(
                run=run, client=client, viewer=viewer, number=number, matrix=matrix, bad=bad,
                ended=Ended(folder), live=str(folder / "live"),
            )  # fmt: skip


class Ended:
    """A run that has ended, a client of it, and its recording, which is closed."""

    def __init__(self, folder: Path) -> None:
        with sg.init("old", dir=folder, record=["batch.loss"]) as run:
            self.client = sg.connect(run)
            run.observe("batch", loss=1.0)
        self.recorded = sg.open(run.directory)


def ask(text: str, **observables: Any) -> object:
    """Evaluate an expression of `b` as the head of a query does."""
    evaluation = Evaluation(parse(f"on('batch').map(lambda b: {text})"), meter=Meter(limit_s=1.0))
    return evaluation.per_event(observables).value


def ask_too_much() -> object:
    """Evaluate what takes longer than an event may, by a clock that counts."""
    ticks, model = itertools.count(), CostModel()
    model.factors = dict.fromkeys(model.factors, 0.01)  # so that it looks cheap before it runs
    meter = Meter(limit_s=0.0215, max_bytes=MAX_BYTES, cpu_s=lambda: next(ticks) / 1_000, model=model)
    return Evaluation(parse("on('batch').map(lambda b: (b.x * 1.5).sum())"), meter=meter).per_event(
        {"x": np.broadcast_to(1.0, (10**8,))}
    )


KNOWN = f"Known: {', '.join(sorted(FUNCTIONS)[:12])} and {len(FUNCTIONS) - 12} more."

SHOWN: list[tuple[Callable[[Any], object], str]] = [
    # A query as text
    (lambda at: parse("fn.system('ls', b.x)", functions=[]),
     f"Unknown function 'system'. {KNOWN}\n  fn.system('ls', b.x)\n     ^"),
    (lambda at: parse("batch.loss.avg(every=10)", functions=[]),
     f"Unknown function 'avg' called on a value. Did you mean 'mean'? {KNOWN}\n"
     "  batch.loss.avg(every=10)\n             ^"),
    (lambda at: parse("pow(b.x, 2)", functions=[]),
     f"Unknown function 'pow'. Write x ** y. {KNOWN}\n  pow(b.x, 2)\n  ^"),
    (lambda at: parse("mean(batch.loss"),
     "Expected a query such as batch.loss or batch.loss.mean(every=100), found invalid syntax: '(' was never closed\n"
     "  mean(batch.loss\n      ^"),
    (lambda at: parse("batch.x.mean(1, 2, 3)"),
     "Wrong arguments for mean(x, axis=None): too many positional arguments\n  batch.x.mean(1, 2, 3)\n  ^"),
    (lambda at: parse("b.x.rolling(3)"),
     "Expected a reducer after rolling, such as rolling(100).mean()\n  b.x.rolling(3)\n  ^"),
    (lambda at: parse("b" * 10**6), "Expected a query of at most 65536 characters, got 1000000"),
    # A query as a lambda
    (lambda at: sg.on("batch").map(lambda b: b.x if b.y else 0),
     "A query cannot decide with `if`, `and`, `or`, `not` or a chained comparison: write where(condition, x, y), "
     "maximum(x, y), `&`, `|`, `~`, or a .where(lambda …) stage. In: b.y"),
    (lambda at: sg.on("batch").map(lambda b: np.hstack([b.x, b.y])),
     f"Unknown function 'hstack' for numpy.hstack. Did you mean 'stack'? {KNOWN}"),
    (lambda at: sg.on("batch").map(lambda b: np.unique(b.x)),
     "A query cannot use numpy.unique: write x.unique(), which gives the values and their counts"),
    (lambda at: sg.on("batch").map(lambda b: b.x + np.ones(3)),
     "A query cannot contain an array (ndarray). Pass it to `observe`, or register a function that uses it: "
     "run.function(name, fn)"),
    (lambda at: sg.on("batch").map(lambda b: b._x),
     "Expected a public name in a query, got '_x': names with a leading underscore are refused"),
    (lambda at: sg.on("batch").map(lambda b: setattr(b, "x", 1)),
     "A query cannot set 'x': it only reads. To change the run, use run.set"),
    (lambda at: sg.on("batch").quantile(1.5), "Expected q between 0 and 1, or a list of them, got 1.5"),
    (lambda at: sg.on("batch").mean(every="3 apples"),
     "Expected a duration such as '5 min', '30 s', '500 ms' or '2 h', got '3 apples'"),
    (lambda at: sg.on("a").count(every=3).join("b"), "Expected join('b') directly after on('a'), before other stages"),
    # The values that a query reads
    (lambda at: ask("b.x + b.y", x=np.ones(3), y=np.ones(2)),
     "Expected shapes that broadcast together, got (3,) and (2,)"),
    (lambda at: ask("b.x[5]", x=np.ones(3)),
     "Cannot read [5] of float64[3]: IndexError: index 5 is out of bounds for axis 0 with size 3"),
    (lambda at: ask("b.x.median(axis=2)", x=np.ones((2, 2))),
     "Expected axes from -2 to 1, as the array has 2, got axis=2"),
    (lambda at: ask("b.m['q']", m={"a": 1, "b": 2}), "Unknown key 'q'. Known: a, b."),
    (lambda at: ask("b.x.sum()", x="text"), "Expected a number or an array, got str"),
    (lambda at: ask("9 ** 9 ** 8"), "Expected integer powers of at most 64 bits, got 9 ** 43046721"),
    (lambda at: ask_too_much(),
     "Expected at most 21.5 ms of the run's time for an event, stopped after 18.2 ms in (b.x * 1.5).sum(): ask for a "
     ".sample(n) of large arrays, or less often"),
    (lambda at: parse_index("[0, 1.0]"), "Expected an integer, got 1.0\n  [0, 1.0]\n      ^"),
    # A run, from another program
    (lambda at: sg.connect("mnits"),
     "Unknown run 'mnits' among the live runs of this user. Did you mean 'mnist'? Known: mnist."),
    (lambda at: sg.connect(5), "Expected a run's name or id, a connection file or a run, got int"),
    (lambda at: list(at.bad),
     "Unknown observable 'los' at event 'batch'. Did you mean 'loss'? Known: loss, step, w. (step 2)"),
    (lambda at: at.client.stream("bach.loss").note,
     "Unknown event 'bach' so far. Did you mean 'batch'? Known: batch. Waiting for the first."),
    (lambda at: at.client.set("lrr", 0.5), "Unknown control 'lrr'. Did you mean 'lr'? Known: lr."),
    (lambda at: at.client.call("save"), "Unknown action 'save'. Known: none."),
    (lambda at: Control("lr", 0.1, max=1.0, where="train.py:12").set(2),
     "Control 'lr': expected at most 1.0, got 2.0 (declared in train.py:12)"),
    (lambda at: Control("lr", 0.1).set("fast"), "Control 'lr': expected float, got str 'fast'"),
    (lambda at: at.viewer.set("lr", 0.5), "Expected a controller's key to set; a viewer's key is read-only"),
    (lambda at: at.viewer.record("batch.w"), "Expected a controller's key to record; a viewer's key is read-only"),
    (lambda at: at.number.zip(at.matrix, by="time"),
     "Expected by= to be one of 'step', 'index', 'wall_time', got 'time'"),
    (lambda at: at.number.wait(9, timeout_s=0.0), "Expected 9 records of 'batch.loss' within 0.0 s, got 5"),
    (lambda at: at.number.to_polars(), "Stream.to_polars needs 'polars': pip install 'sightglass[export]'"),
    # A run that has ended
    (lambda at: at.ended.client.stream("batch.loss"), "Run 'old' has ended"),
    (lambda at: at.ended.recorded.stream("batch.lr"),
     "batch.lr cannot be answered from the recorded series. Recorded: batch.loss."),
    (lambda at: sg.open("nowhere"), "'nowhere' does not exist"),
    # The program of a run
    (lambda at: sg.init(""), "Expected the run's name as text, got ''"),
    (lambda at: sg.init("job", budget=2), "Expected a budget above 0 and up to 1, or None, got 2"),
    (lambda at: sg.init("job", mode="loud"), "Expected mode 'live' or 'disabled', got 'loud'"),
    (lambda at: sg.init("job", listen="0.0.0.0:0"),
     "Expected an endpoint such as 'tcp://0.0.0.0:0', got '0.0.0.0:0'"),
    (lambda at: sg.init("job", record="batch.loss"),
     "Expected a list of queries to record, got text: record=['batch.loss']"),
    (lambda at: at.run.log("loss", 3.0),
     "Expected a mapping of names to values, such as log({'loss': 0.5}), got log('loss', 3.0)"),
    (lambda at: at.run.observe(""), "Expected the name of an event such as 'batch', got ''"),
    (lambda at: at.run.finish(), "A run has no attribute 'finish'. Did you mean close()?"),
    (lambda at: at.run.stream("batch.loss"),
     "A run has no attribute 'stream'. Did you mean sightglass.connect(run).stream(…)?"),
    (lambda at: at.run.control("x", []), "Expected a bool, int, float or str as control 'x', got list"),
    # A view
    (lambda at: sg.plot("loss"),
     "Expected a stream as argument 1 of plot(), got str. Get the stream from a run: plot(run.stream('loss'))."),
    (lambda at: sg.plot(at.number, at.matrix, surface="terminal"),
     "Streams 'batch.loss' and 'batch.w' cannot share a view: 'batch.loss' is a number (view 'line'), 'batch.w' is a "
     "matrix (view 'heatmap'). Plot them separately."),
    (lambda at: sg.plot(at.number, view="heatmap", surface="terminal"),
     "view='heatmap' cannot show stream 'batch.loss', which is a number. Views that can: line, histogram, bars, log, "
     "table."),
    (lambda at: sg.plot(at.number, surface="terminl"),
     "Unknown surface 'terminl'. Did you mean 'terminal'? Known: matplotlib, notebook, plotly, terminal."),
    (lambda at: sg.plot(at.number, surface="terminal", smoth=0.5),
     "Unknown option of the terminal surface 'smoth'. Did you mean 'smooth'? Known: clip, console, dark, frames, "
     "height, history, last, log_x, log_y, over, smooth, x and 2 more."),
    (lambda at: sg.Table({"a": [1, 2], "b": [1]}), "Expected columns of one length, got {'a': 2, 'b': 1}"),
]  # fmt: skip
"""What a user does, and what they read then."""


@pytest.mark.parametrize(("act", "message"), SHOWN, ids=[message[:60] for _, message in SHOWN])
def test_what_users_read(at: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, act: Any, message: str) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    monkeypatch.setenv("SIGHTGLASS_RUNTIME_DIR", at.live)
    try:
        shown = act(at)
    except Exception as error:  # noqa: BLE001
        shown = str(error)
    assert shown == message


# Elsewhere


@pytest.mark.smoke
def test_other_tests_name_a_thing_and_pin_no_sentence() -> None:
    assert pinned.places() == []


PINNED = """
NAMED = r"Cannot read .* of this thing at all"

@pytest.mark.parametrize(("query", "why"), [("a", "there is no such thing"), ("b", "'los'.*'loss'")])
def test(query, why):
    with pytest.raises(ValueError, match="Expected shapes that broadcast together, got .*"): ...
    with pytest.raises(ValueError, match=re.escape(why)): ...
    with pytest.raises(ValueError, match=NAMED) as caught: ...
    assert str(caught.value) == f"Run {name!r} has ended for good now"
    assert stream.note == "waiting for the first one"
    assert str(stream.last_error).startswith("this one is long")
    assert re.search("and so is that", str(caught.value))
    for text, message in [("x", "nobody knows that one")]:
        assert message in str(caught.value)
"""


def test_a_pinned_sentence_would_be_found() -> None:
    assert sorted(map(pinned.text_of, pinned.pinned(PINNED))) == [
        "Cannot read .* of this thing at all",
        "Expected shapes that broadcast together, got .*",
        "Run  0  has ended for good now",
        "and so is that",
        "nobody knows that one",
        "there is no such thing",
        "this one is long",
        "waiting for the first one",
    ]


@pytest.mark.parametrize(
    ("text", "n"),
    [
        (r"^Unknown run 'far' in .*\. Did you mean 'near'\?$", 3),
        (r"64 MiB, got \d+ MiB|1\.0 s of the run's time ", 3),
        ("no room for it, got int", 4),
        ("'what is quoted is one thing'.*got str", 2),
        ("absmax, inf, max, min, nan, zero", 1),
        ("OSError: No space left on device", 5),
    ],
)
def test_words_in_a_row_are_counted(text: str, n: int) -> None:
    assert pinned.n_words(text) == n
