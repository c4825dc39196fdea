"""Every error that sightglass raises, in one tree.

::

    SightglassError
    ├── QueryError             a query that cannot be answered
    │   ├── QuerySyntaxError   … because its text or its lambda is not valid
    │   ├── RefusedQueryError  … because it exceeds a limit, or needs something that queries may not do
    │   │   └── RefusedFunctionError  … because it calls a function of the run that is refused
    │   │   └── PriceError     … because it costs the run more than one event may
    │   └── EvaluationError    … because it failed on an event
    │       ├── AbsentError    … because this event lacks an observable; the event is skipped
    │       └── UnreadableError  … because an array has no data: its memory was freed, or it is not dense
    ├── CommandError           a control or an action that was refused or failed
    ├── UnknownNameError       a name that does not exist (also a LookupError)
    ├── RunNotFoundError       no run has this name or id (also a LookupError)
    ├── RunLostError           a run that died or no longer responds (also a ConnectionError)
    ├── WorkerLostError        a process that read recorded runs ended before it answered (also a RuntimeError)
    ├── DeadlockError          a call that waits for a run, from code that the run waits for (also a RuntimeError)
    ├── RefusedError           a request that the run refused
    │   └── UnconfirmedError   … because its cost to the run must be confirmed
    ├── TransportError         a transport that cannot be opened or used (also an OSError)
    ├── WireError              bytes that are not a valid message (also a ValueError)
    ├── UnsendableError        a value that cannot be serialised (also a TypeError)
    ├── StorageError           records that could not be written (also an OSError)
    ├── DamagedError           a file that is damaged, or is not a record file (also a ValueError)
    ├── LogError               a log in a JAX program that cannot be collected (also a ValueError)
    ├── ViewError              streams or values that cannot share a view (also a ValueError)
    ├── FigureError            a figure that could not be drawn, written or passed to a sink
    ├── FigureErrors           … several of them (also an ExceptionGroup)
    ├── AlertError             a rule of alerts that is not valid, or an alert that could not be delivered
    └── MissingExtraError      an optional package that is not installed (also an ImportError)

`warn_user` warns at the line of the program; `say_elsewhere` names what people look for under other names.
"""

from __future__ import annotations

import builtins
import contextlib
import difflib
import math
import os
import sys
import unicodedata
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

PACKAGE: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep  # where this library lies

MAX_NAMES_SHOWN = 12  # about two lines in a terminal
MAX_NAMES_COMPARED = 1_000  # difflib takes about 10 us for each; a model may have many thousand parameters
MAX_NAME_LENGTH = 120  # one line; names may come from another program
MAX_SHOWN: Final = 200  # characters of a query or a tag: two lines of a terminal
MAX_CARET_CONTEXT = 100  # with the ellipses and the indent, a line of 120 columns


class SightglassError(Exception):
    """The base class of every error that sightglass raises."""


class QueryError(SightglassError):
    """A query that cannot be answered."""


class QuerySyntaxError(QueryError):
    """A query whose text or lambda is not valid.

    Attributes:
        text: The query's text, or `None` when it came from a lambda.
        column: The position in `text`, counted from 0, or `None`.
    """

    def __init__(self, message: str, *, text: str | None = None, column: int | None = None) -> None:
        self.text = text
        self.column = column
        super().__init__(message if text is None or column is None else f"{message}\n{caret(text, column)}")


class RefusedQueryError(QueryError):
    """A query that exceeds a limit, such as the size of a result, or needs something that queries may not do."""


class PriceError(RefusedQueryError):
    """A query that costs a run more than one event may; the message says what to ask instead.

    Attributes:
        seconds: The time that it would take, or took until it was stopped.
        n_bytes: The bytes that it would hold; 0 if it was refused for its time.
    """

    def __init__(self, message: str, *, seconds: float = 0.0, n_bytes: int = 0) -> None:
        self.seconds = seconds
        self.n_bytes = n_bytes
        super().__init__(message)


class RefusedFunctionError(RefusedQueryError):
    """A query that calls a function of the run which took too long for a call, or which viewers may not call."""


class EvaluationError(QueryError):
    """A query that failed on an event.

    Attributes:
        event: The event's name, or `None`.
        step: The step at which it failed, or `None`.
    """

    def __init__(self, message: str, *, event: str | None = None, step: float | None = None) -> None:
        self.event = event
        self.step = step
        super().__init__(message)


class AbsentError(EvaluationError):
    """The event lacks an observable that other events have. It is skipped, as if filtered by `where`."""


class UnreadableError(EvaluationError):
    """An array whose data cannot be read: its memory was freed, it has no data, or it is not dense."""


class CommandError(SightglassError):
    """A control or an action that the run refused, or that failed."""


class UnknownNameError(SightglassError, KeyError):
    """A name that does not exist.

    Attributes:
        what: The kind of name, such as "observable".
        name: The unknown name.
        known: The names that exist.
    """

    def __init__(self, what: str, name: object, known: Iterable[object], *, where: str = "") -> None:
        self.what = what
        self.name = name
        self.known = tuple(known)
        super().__init__(unknown(what, name, self.known, where=where))

    def __str__(self) -> str:
        return str(self.args[0])


class RunNotFoundError(SightglassError, LookupError):
    """No run has this name or id."""


class RunLostError(SightglassError, ConnectionError):
    """A run that died or no longer responds."""


class WorkerLostError(SightglassError, RuntimeError):
    """A process that read recorded runs for this one ended before it answered."""


class DeadlockError(SightglassError, RuntimeError):
    """A call that waits for a run, from code that the run waits for: it would never be answered."""


class RefusedError(SightglassError):
    """A request that the run refused; the message gives the reason."""


class UnconfirmedError(RefusedError):
    """A query whose cost to the run must be confirmed: the message names the cost, `confirm=True` accepts it."""


class TransportError(SightglassError, OSError):
    """A transport that cannot be opened or used."""


class WireError(SightglassError, ValueError):
    """Bytes that are not a valid Sightglass message, or that exceed a limit."""


class UnsendableError(SightglassError, TypeError):
    """A value that cannot be serialised: it is not a number, a string, an array or a container of these."""


class StorageError(SightglassError, OSError):
    """Records that could not be written."""


class DamagedError(SightglassError, ValueError):
    """A file whose bytes differ from what was written, or that is not a record file."""


class LogError(SightglassError, ValueError):
    """A log in a JAX program that cannot be collected; the message names the line that calls `log`."""


class ViewError(SightglassError, ValueError):
    """Streams or values that cannot share a view."""


class FigureError(SightglassError):
    """A figure that could not be drawn, written or passed to a sink.

    Attributes:
        figure: The figure's name, or the name of the function that draws it.
        step: The figure's step, or `None`.
        kind: The type of the original exception, such as "ValueError".
        traceback: The traceback from the process that drew the figure, as text; may be empty.
    """

    def __init__(
        self, message: str, *, figure: str = "", step: float | None = None, kind: str = "", traceback: str = ""
    ) -> None:
        self.figure = figure
        self.step = step
        self.kind = kind
        self.traceback = traceback
        super().__init__(message)

    def __str__(self) -> str:
        message = str(self.args[0])
        return f"{message}\n{self.traceback.rstrip()}" if self.traceback else message


class FigureErrors(ExceptionGroup[FigureError], SightglassError):
    """Every figure error since errors were last raised."""

    def derive(self, excs: Sequence[FigureError], /) -> FigureErrors:  # type: ignore[override]
        """Return a group of the same message with other errors."""
        return FigureErrors(self.message, excs)


class AlertError(SightglassError):
    """An alert that could not be delivered, without its address; or rules, a receiver or a journal that do not work."""


class MissingExtraError(SightglassError, ImportError):
    """An optional package that is not installed."""

    def __init__(self, package: str, *, extra: str, purpose: str) -> None:
        self.package = package
        self.extra = extra
        super().__init__(f"{purpose} needs {package!r}: pip install 'sightglass[{extra}]'")


def warn_user(message: str, category: type[Warning] = RuntimeWarning) -> None:
    """Warn at the line of the program that called this library, however deep the cause is."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def warn(message: str) -> None:
    """Warn as `warn_user`; where warnings are errors, none comes out of what must go on."""
    with contextlib.suppress(Warning):
        warn_user(message)


MEANINGS: Final = {
    "avg": "mean", "average": "mean", "stddev": "std", "sd": "std", "variance": "var", "total": "sum",
    "product": "prod", "absolute": "abs", "length": "len", "n": "count", "hist": "histogram", "ln": "log", "l2": "norm",
    "flatten": "ravel", "view": "reshape", "concatenate": "concat", "cat": "concat", "vstack": "stack", "mm": "matmul",
    "inner": "dot", "correlation": "corr", "corrcoef": "corr", "covariance": "cov", "cosine_similarity": "cosine",
    "isnull": "isnan", "isna": "isnan", "svd": "svdvals", "percentiles": "percentile", "quantiles": "quantile",
    "value_counts": "unique", "cast": "astype", "to": "astype", "select": "map", "apply": "map", "filter": "where",
    "limit": "collect", "take": "collect", "nunique": "distinct", "moving_average": "rolling", "window": "rolling",
    "smooth": "ema", "ewm": "ema", "delta": "diff", "accumulate": "scan", "fold": "reduce", "aggregate": "reduce",
    "throughput": "rate", "frequency": "rate", "idxmax": "argmax", "idxmin": "argmin", "head": "first", "tail": "last",
    "int": "floor", "sorted": "sort", "amax": "max", "amin": "min", "mode": "unique",
}  # fmt: skip
"""What people call things elsewhere, by the names here: a word that looks alike often means something else."""

BY: Final = "Write by= in a reducer: mean(by=lambda b: b.label, every=100)"
WHERE_IT_IS: Final = "Leave it out: a query reads a value where it is"
INSTEAD: Final = {
    "pow": "Write x ** y", "transpose": "Write x.T", "squeeze": "Write x.reshape(…), or x[0]",
    "groupby": BY, "group_by": BY, "detach": WHERE_IT_IS, "cpu": WHERE_IT_IS, "cuda": WHERE_IT_IS, "numpy": WHERE_IT_IS,
    "tolist": WHERE_IT_IS, "clone": WHERE_IT_IS,
}  # fmt: skip
"""What to write instead of functions that queries do not have."""

WATCHED: Final = "sightglass.torch.watch(model, run) offers it"
WITH_OPTIMIZER: Final = "sightglass.torch.watch(model, run, optimizer=…) offers it"
OF_WATCH: Final = {
    "grads": WATCHED, "params": WATCHED, "activations": WATCHED, "inputs": WATCHED, "activation_grads": WATCHED,
    "updates": WITH_OPTIMIZER, "optimizer": WITH_OPTIMIZER,
}  # fmt: skip
"""What offers an observable that a PyTorch program lacks."""

CALLED: Final = ("function", "stage")
MIN_LIKENESS: Final = 0.65  # "evry" and "every" have 0.89, "nope" and "mode" 0.5
MIN_WORD: Final = 4  # letters; shorter words, such as "of", say little
PATH_LIKENESS: Final = 0.8  # of an event to an observable: "validation" and "eval_activations" have 0.69
OTHER_LIKENESS: Final = 0.9  # to the name of another function: "sinh" and "sin" have 0.86


def closest(name: object, names: Iterable[str], *, likeness: float = MIN_LIKENESS) -> str | None:
    """Return which of some names is meant by one that people use elsewhere, misspell, cut short, or have as a word.

    >>> closest("avg", ["max", "mean"]), closest("evry", ["every", "per"]), closest("grad_norm", ["grads", "loss"])
    ('mean', 'every', 'grads')
    """
    names, text = [*names], str(name)[:MAX_NAME_LENGTH]
    meant = MEANINGS.get(text)
    if meant in names:
        return meant
    swapped = next((known for known in names if sorted(known) == sorted(text)), None)
    alike = swapped or next(iter(difflib.get_close_matches(text, names, n=1, cutoff=likeness)), None)
    words = {word.rstrip("s") for word in text.split("_") if len(word) >= MIN_WORD}
    longer = [known for known in names if text and known.startswith(text) and likeness < OTHER_LIKENESS]
    return alike or next((known for known in names if known.rstrip("s") in words), min(longer, key=len, default=None))


def _is_spelled_right(name: str) -> bool:
    """Return whether a name is that of a function of Python or NumPy: it means that, not one that looks alike."""
    return any(name in vars(module) for module in (builtins, math, sys.modules.get("numpy", math)))


def unknown(what: str, name: object, known: Iterable[object], *, where: str = "", elsewhere: Iterable[str] = ()) -> str:
    """Return a message that a name is unknown, with the closest known name and the known names.

    Args:
        what: The kind of name.
        name: The name.
        known: The names that are known there.
        where: Where that is.
        elsewhere: Names that are known in other places, and that may be meant.

    >>> unknown("observable", "los", ["loss", "grads"], where="at event 'batch'")
    "Unknown observable 'los' at event 'batch'. Did you mean 'loss'? Known: grads, loss."
    """
    every = tuple(known)
    names = sorted(str(k)[:MAX_NAME_LENGTH] for k in every[:MAX_NAMES_COMPARED])
    message = f"Unknown {what} {name!r:.{MAX_NAME_LENGTH}}{' ' + where if where else ''}."
    called = what in CALLED
    likeness = OTHER_LIKENESS if called and _is_spelled_right(str(name)) else MIN_LIKENESS
    close = closest(name, [*names, *elsewhere], likeness=likeness)
    if called and name in INSTEAD:
        message += f" {INSTEAD[name]}."
    elif close:
        message += f" Did you mean {close!r}?"
    elif what == "observable" and name in OF_WATCH and "torch" in sys.modules:
        message += f" {OF_WATCH[name]}."
    return f"{message} {_known(names, len(every))}"


def _known(names: Sequence[str], n: int) -> str:
    """Return the first of some names, of `n` in all."""
    more = f" and {n - MAX_NAMES_SHOWN} more" if n > MAX_NAMES_SHOWN else ""
    return f"Known: {', '.join(names[:MAX_NAMES_SHOWN]) or 'none'}{more}."


def unknown_event(name: str, offered: Mapping[str, Iterable[str]]) -> str:
    """Return a message that an event is unknown so far; where an observable is meant, with its event.

    >>> unknown_event("loss", {"batch": ["loss", "x"]})
    "Unknown event 'loss' so far. Did you mean 'batch.loss'? Known: batch."
    """
    paths = {observable: event for event in offered if event.isidentifier() for observable in offered[event]}
    meant = name if name in paths else None if closest(name, offered) else closest(name, paths, likeness=PATH_LIKENESS)
    if meant is None:
        return unknown("event", name, offered, where="so far")
    known = _known(sorted(offered), len(offered))
    return f"Unknown event {name!r} so far. Did you mean '{paths[meant]}.{meant}'? {known}"


def cut(text: str) -> str:
    """Return a text for a message: of a long one, the first `MAX_SHOWN` characters."""
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"


def caret(text: str, column: int) -> str:
    r"""Return the line of a text with a caret under a column; long lines are cut on both sides.

    >>> print(caret("batch.lss", 6))
      batch.lss
            ^
    """
    start = text.rfind("\n", 0, column) + 1
    line = text[start:].partition("\n")[0]
    place = min(column - start, len(line))
    first = max(0, place - MAX_CARET_CONTEXT // 2) if len(line) > MAX_CARET_CONTEXT else 0
    shown = line[first : first + MAX_CARET_CONTEXT]
    before = "…" if first else ""
    after = "…" if first + MAX_CARET_CONTEXT < len(line) else ""
    return f"  {before}{shown}{after}\n  {' ' * len(before)}{''.join(map(_blank, shown[: place - first]))}^"


def _blank(character: str) -> str:
    """Return as many blanks as a character takes columns in a terminal."""
    if character == "\t":
        return character
    if unicodedata.combining(character):
        return ""
    return "  " if unicodedata.east_asian_width(character) in "WF" else " "


# Attributes that people know from other libraries, or from another kind of run: reading one says what to use here.


class Elsewhere:
    """An attribute that is not there: reading it raises, and says what is meant."""

    def __init__(self, message: str) -> None:
        self._message = message

    def __get__(self, run: object, owner: type) -> Any:
        raise AttributeError(self._message)


def say_elsewhere(cls: type, what: str, meant: Mapping[str, str]) -> None:
    """Give a class attributes that raise, by what is meant. With `__getattr__`, all others were read more slowly.

    Args:
        cls: The class.
        what: What its instances are, such as "A run".
        meant: For each attribute, what to use instead.
    """
    for name, instead in meant.items():
        setattr(cls, name, Elsewhere(f"{what} has no attribute {name!r}. Did you mean {instead}?"))
