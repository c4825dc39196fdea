"""Text that is no query is refused: the message has a caret under the place, and says what was meant."""

from __future__ import annotations

import re

import pytest
from tests.query.lambdas import lambda_of

from sightglass.core.errors import QueryError, QuerySyntaxError, RefusedQueryError
from sightglass.query.functions import FUNCTIONS
from sightglass.query.parser import as_query, parse
from sightglass.query.query import on

INSIDE = [  # an expression with a mark « before the place that is refused, and the message
    ("«b.x and b.y", "Write `&` and `|` instead of `and` and `or`, with parentheses around comparisons"),
    ("max(b.x, 1, «axis=0)", "Write x.max(axis=0) for an axis; max(a, b) takes values only"),
    ("b.x + («not b.y)", "Write `~` instead of `not`"),
    ("«0 < b.x < 1", "Write (a < b) & (b < c) instead of a chained comparison"),
    ("«'a' in b.x", "Write x.contains(part) instead of `part in x`"),
    ("«b.x is None", "Write x == None, or isnan(x), instead of `is`"),
    ("«[v for v in b.x]", "Write x.map(lambda name, value: …) instead of a comprehension"),
    ("«{k: 1 for k in b.x}", "Write x.map(lambda name, value: …) instead of a comprehension"),
    ("abs«(v for v in b.x)", "Write x.map(lambda name, value: …) instead of a loop"),
    ("abs(«f'{b.x}')", "A query cannot format strings: return the values themselves"),
    ("abs(«{b.x})", "Write a list instead of a set"),
    ("abs(«*b.x)", "A query cannot unpack"),
    ("abs(**«b.x)", "A query cannot unpack"),
    ("«b.x << 2", "Expected one of the operators + - * / // % ** & | ^"),
    ("b.«_x", "Expected a public name, got '_x': a leading underscore is refused"),
    ("b.x.«__class__", "Expected a public name, got '__class__': a leading underscore is refused"),
    ("b.x.«_f()", "Expected a public name, got '_f': a leading underscore is refused"),
    ("«_f(b.x)", "Expected a public name, got '_f': a leading underscore is refused"),
    ("b.x.«men()", "Unknown function 'men' called on a value. Did you mean 'mean'? Known: "),
    ("b.x.«eval('1')", "Unknown function 'eval' called on a value. "),
    ("«b.x[0](1)", "A query can only call named functions"),
    ("b.x + «c", "Unknown name 'c'. Known: b."),
    ("b.x + «1j", "Expected a constant (number, string, bool or None) in a query, got complex"),
    ("b.x + «b'bytes'", "Expected a constant (number, string, bool or None) in a query, got bytes"),
    ("b.x + «18446744073709551616", "Expected an integer from -2**63 to 2**64 - 1, got 65 bits"),
    ("b.x + «-9223372036854775809", "Expected an integer from -2**63 to 2**64 - 1, got 64 bits"),
    ("b.x + «...", "Expected `...` only inside an index, as in x[..., 1:]"),
    ("{'a': 1, «b.x: 2}", "Expected strings as the keys of a mapping"),
    ("«{**b.x}", "Expected strings as the keys of a mapping"),
    ("b.x + («lambda v: v)", "Expected a value, got a lambda: only stages and functions such as map take lambdas"),
    ("b.x.map(lambda v, «v: v)", "Expected an unused name for the lambda's argument, got 'v'"),
    ("b.x.map(lambda «b: b)", "Expected an unused name for the lambda's argument, got 'b'"),
    ("b.x.map(lambda «nan: nan)", "Expected an unused name for the lambda's argument, got 'nan'"),
    ("b.x.map(lambda «_v: 1)", "Expected a public name, got '_v': a leading underscore is refused"),
    ("b.x.map(«lambda *v: 1)", "Expected a lambda of one or two positional arguments"),
    ("b.x.map(«lambda v=1: 1)", "Expected a lambda of one or two positional arguments"),
    ("b.x.map(«lambda: 1)", "Expected a lambda of one or two positional arguments"),
    ("«b.x.map(1)", "Wrong arguments for map(x, lambda name, value: …): argument 2 must be a lambda, got a value"),
    ("«abs(b.x, 1)", "Wrong arguments for abs(x): too many positional arguments"),
    ("«b.x.mean(ax=1)", "Wrong arguments for mean(x, axis=None): got an unexpected keyword argument 'ax'"),
    ("b.x.mean(axis=1, «axis=2)", "Expected 'axis' once"),
]  # fmt: skip


def refused(text: str) -> tuple[QueryError, str, int]:
    """Return the error, its message and where the caret stands in the shown line."""
    with pytest.raises(QueryError) as raised:
        parse(text)
    message, line, marks = str(raised.value).rsplit("\n", 2)
    assert marks.strip() == "^"
    assert line.startswith("  ")
    return raised.value, message, len(marks) - len("  ^")


@pytest.mark.parametrize(("marked", "message"), INSIDE)
@pytest.mark.parametrize("before", ["", "{'ä': 1, 'λ\U0001d4d0': ", "(1 +\n 'µ',\n\t", "(1,\r\n"])
def test_the_caret_stands_under_the_place(marked: str, message: str, before: str) -> None:
    after = {"": "", "{": "}", "(": ")"}[before[:1]]
    marked = before + marked + after
    text = f"on('b').map(lambda b: {marked})"
    column = text.index("«")
    error, said, caret = refused(text.replace("«", ""))
    assert said.startswith(message)
    line = text[:column].replace("\r\n", "\n").rpartition("\n")[2]
    assert caret == len(line)
    if isinstance(error, QuerySyntaxError):
        assert error.column == len(text[:column].replace("\r\n", "\n"))


@pytest.mark.parametrize("tag", ["train/loss", " val/top-1 ", "layer/0/weight"])
def test_a_tag_with_slashes_is_what_was_logged_under_it(tag: str) -> None:
    assert parse(tag) == parse(f"log[{tag.strip()!r}]")


def test_a_quotient_of_two_events_is_refused() -> None:
    assert "got 'batch', 'epoch'" in refused("batch.loss / epoch.loss")[1]
    assert parse("batch.loss / batch.x") == parse("on('batch').map(lambda batch: batch.loss / batch.x)")


SYNTAX = "Expected a query such as batch.loss or batch.loss.mean(every=100), found invalid syntax"
OUTSIDE = [
    ("norm of x", SYNTAX, 5),
    (
        "np.mean(batch.x)",
        "Expected one event in a query such as batch.loss, or on('batch')…; got 'np', 'batch'. "
        "Functions have no prefix in text: mean(batch.loss), not np.mean(batch.loss)",
        8,
    ),
    ("[v for v in batch.x]", "Write x.map(lambda name, value: …) instead of a comprehension", 0),
    ("isinstance(batch.x, float)", "Write x.dtype == 'float32' and the like instead of isinstance", 0),
    (
        "batch.x.count()",
        "Expected a function of one value, got the reducer 'count'. Over events, write a reducer with a "
        "window at the end of the query: .count(every=100), .count(per='epoch'), or .rolling(100).count()",
        8,
    ),
    (
        "batch.x.mean(last=10)",
        "Wrong arguments for mean(x, axis=None): got an unexpected keyword argument 'last'. "
        "Over events, write a reducer with a window at the end of the query: .mean(every=100)",
        0,
    ),
    ("on('b').mean(10)", "Wrong arguments for mean: too many positional arguments. Name a window: mean(every=100)", 0),
    ("on('b').ema()", "Wrong arguments for ema: missing a required argument: 'alpha'", 0),
    (
        "on('b').groupby(1)",
        "Unknown stage 'groupby' of a query. Write by= in a reducer: mean(by=lambda b: b.label, every",
        8,
    ),
    (
        "batch.x.detach()",
        "Unknown function 'detach' called on a value. Leave it out: a query reads a value where it is.",
        8,
    ),
    ("batch.x.squeeze()", "Unknown function 'squeeze' called on a value. Write x.reshape(…), or x[0].", 8),
    ("", SYNTAX, 0),
    ("on('b').map(lambda b: b.x", f"{SYNTAX}: '(' was never closed", 11),
    ("batch.", SYNTAX, 6),
    ("x = 1", SYNTAX, 2),
    ("import os", SYNTAX, 0),
    ("(1 +\n 2 3)", SYNTAX, 1),
    ("1", "Expected one event in a query such as batch.loss, or on('batch')…; got none", 0),
    (
        "batch.x + epoch.y",
        "Expected one event in a query such as batch.loss, or on('batch')…; got 'batch', 'epoch'. "
        "Write on('batch').join('epoch').map(lambda b: …) to read 'epoch' beside 'batch'",
        10,
    ),
    ("_b.x", "Expected a public name, got '_b': a leading underscore is refused", 0),
    ("on(b)", 'Expected one event name: on("batch")', 0),
    ("on('')", 'Expected one event name: on("batch")', 0),
    ("on('b', 'c')", 'Expected one event name: on("batch")', 0),
    ("on('b').meen()", "Unknown stage 'meen' of a query. Did you mean 'mean'? Known: ", 8),
    (
        "on('b').mean(evry=1)",
        "Wrong arguments for mean: got an unexpected keyword argument 'evry'. Did you mean 'every'? A window is one",
        0,
    ),
    (
        "b.x.mean(evry=1)",
        "Wrong arguments for mean(x, axis=None): got an unexpected keyword argument 'evry'. Did you mean 'every'?",
        0,
    ),
    (
        "b.x.mean(axs=1)",
        "Wrong arguments for mean(x, axis=None): got an unexpected keyword argument 'axs'. Did you mean 'axis'?",
        0,
    ),
    (
        "b.x.mean(every=1, bye=2)",
        "Wrong arguments for mean: got an unexpected keyword argument 'bye'. Did you mean 'by'?",
        0,
    ),
    ("b.x.roling(3).mean()", "Unknown function 'roling' called on a value. Did you mean 'rolling'?", 4),
    ("on('b').mean(every=0)", "Expected `every` to be a number of events or a time such as '5 min', got 0", 0),
    ("on('b').mean(every='5 parsecs')", "Expected a duration such as '5 min', '30 s', '500 ms' or '2 h', got", 0),
    ("on('b').mean(every=1, per='e')", "Expected one window, got every and per", 0),
    ("on('b').mean(**{})", "A query cannot unpack", 15),
    ("on('b').map(5)", "Expected a function such as lambda b: b.loss, got 5", 0),
    ("on('b').map(lambda a, b: a)", "Expected a lambda of 1 arguments, got one of 2: lambda a, b: a", 0),
    ("on('b').quantile(2)", "Expected q between 0 and 1, or a list of them, got 2", 0),
    ("on('b').histogram(10**7)", "Expected a constant, got 10 ** 7", 18),
    ("on('b').histogram(10000000)", "Expected bins to be an integer from 1 to 1000000, got 10000000", 0),
    ("on('b').top(0)", "Expected k to be an integer from 1 to 1000000, got 0", 0),
]


@pytest.mark.parametrize(("text", "message", "caret"), OUTSIDE, ids=[case[0] for case in OUTSIDE])
def test_texts_that_are_not_queries(text: str, message: str, caret: int) -> None:
    _, said, place = refused(text)
    assert said.startswith(message)
    assert place == caret


def test_known_functions_are_checked_when_they_are_given() -> None:
    assert parse("confusion(b.y)") == on("b").map(lambda_of("lambda b: confusion(b.y)"))
    assert parse("confusion(b.y)", functions=["confusion"]) == parse("confusion(b.y)")
    with pytest.raises(QuerySyntaxError, match=r"'confsion'.*'confusion'"):
        parse("confsion(b.y)", functions=["confusion"])
    with pytest.raises(QuerySyntaxError, match=r"'system'.*\n  fn.system\('ls', b.x\)\n     \^$"):
        parse("fn.system('ls', b.x)", functions=[])


def test_a_long_line_is_cut_around_the_place() -> None:
    with pytest.raises(QueryError) as raised:
        parse("b.x + " * 500 + "c" + " + b.x" * 500)
    message, line, marks = str(raised.value).split("\n")
    assert len(line) < 120
    assert line[marks.index("^")] == "c" or "deep" in message


def test_wide_letters_are_as_wide_as_in_a_terminal() -> None:
    _, _, caret = refused("on('b').map(lambda b: ('日本', b.x._y))")
    assert caret == len("on('b').map(lambda b: ('日本', b.x.") + 2


def test_queries_that_are_not_strings() -> None:
    with pytest.raises(QuerySyntaxError, match="got int"):
        parse(5)  # type: ignore[arg-type]
    with pytest.raises(QuerySyntaxError, match=r"on\('batch'\)"):
        as_query(5)  # type: ignore[arg-type]
    with pytest.raises(RefusedQueryError, match="65536 characters, got 1000000"):
        parse("b" * 10**6)


def test_reducers_are_checked_when_they_are_written() -> None:
    for make, message in [
        (lambda: on("b").quantile(1.5), "between 0 and 1"),
        (lambda: on("b").quantile([]), "between 0 and 1"),
        (lambda: on("b").top(True), "Expected k"),
        (lambda: on("b").sample(0), "Expected k"),
        (lambda: on("b").collect(10**7), "from 1 to 1000000, got 10000000"),
        (lambda: on("b").histogram(1.5), "Expected bins"),
        (lambda: on("b").mean(every=True), "`every`"),
        (lambda: on("b").mean(per=""), "as a string, got ''"),
        (lambda: on(""), "as a string, got ''"),
    ]:
        with pytest.raises(QueryError, match=re.escape(message)):
            make()
    query = on("b")
    for _ in range(32):
        query = query.map(lambda b: b)
    with pytest.raises(QueryError, match="32 stages"):
        query.map(lambda b: b)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_each_function_is_documented(name: str) -> None:
    function = FUNCTIONS[name]
    assert function.signature.startswith(f"{name}(")
    assert function.doc.endswith((".", "…"))
