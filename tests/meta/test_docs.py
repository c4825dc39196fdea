"""The documentation is run, and compared with what it is about.

Every block of Python in `docs/*.md` and `README.md` runs: page by page in one namespace, in a process of its own,
warnings being errors. A block with `title="NAME.py"` is written to that file, and runs beside its page, which begins
when it has said its first line. Commands in `console` blocks are read by the command line's own parser, and the queries
in them by the query reader.

`docs/functions.md` is generated: `python tests/meta/test_docs.py` writes it.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from tests.meta import function_examples, questions

import sightglass as sg
from sightglass import cli
from sightglass.cli import group
from sightglass.client.run import RemoteRun
from sightglass.client.streams.stream import Stream
from sightglass.core import codec, errors
from sightglass.core.counts import Statistics
from sightglass.core.description import Description, HistoryEntry, StreamInfo
from sightglass.protocol import messages
from sightglass.protocol.address import Address, Keys, read_connection, write_connection
from sightglass.query.access import ARRAY_ATTRIBUTES, HISTOGRAM_ATTRIBUTES
from sightglass.query.expressions import BINARY, UNARY
from sightglass.query.functions import FUNCTIONS
from sightglass.query.query import Query
from sightglass.query.reduce.table import ENTRIES, REDUCERS, SEQUENTIAL
from sightglass.query.stages import WINDOWS, Chain
from sightglass.training.process_runs import init
from sightglass.views import SURFACES, VIEWS, View
from sightglass.views.options import OPTION_NAMES
from sightglass.views.surfaces.terminal import TerminalView

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
PACKAGE = Path(sg.__file__).parent
FUNCTIONS_PAGE = DOCS / "functions.md"
NEEDS = {
    "README": ("torch",),
    "torch": ("torch",),
    "recipes": ("ignite", "lightgbm", "optuna", "skorch", "sklearn", "torch"),
}
THEIRS = "ignore:`torch.jit.:DeprecationWarning"  # of PyTorch, where Ignite imports it
TIMEOUT_S = 300  # a page takes some seconds; this only ends one that hangs, also on a busy machine


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its title if it has one, its text, and the line of the page on which it begins."""

    language: str
    title: str
    text: str
    line: int


def blocks_of(text: str) -> list[Block]:
    """Find the fenced blocks of a page; those in a list are moved to the margin."""
    found: list[Block] = []
    fence, info, begun, lines = "", "", 0, []
    for number, line in enumerate(text.split("\n"), 1):
        mark = re.match(r"\s*(`{3,})(.*)$", line)
        if mark and not fence:
            fence, info, begun, lines = mark[1], mark[2].strip(), number + 1, []
        elif mark and mark[1] == fence and not mark[2].strip():
            title = re.search(r'title="([^"]+)"', info)
            text_of_block = textwrap.dedent("\n".join(lines))
            found.append(Block(info.partition(" ")[0], title[1] if title else "", text_of_block, begun))
            fence = ""
        elif fence:
            lines.append(line)
    assert not fence, f"the block that begins before line {begun} does not end"
    return found


def script_of(blocks: list[Block]) -> str:
    """Put the Python of a page into one script, each block on the lines that it has in the page."""
    lines: list[str] = []
    for block in blocks:
        if block.language == "python" and not block.title:
            lines += [""] * (block.line - 1 - len(lines)) + block.text.split("\n")
    return "\n".join(lines) + "\n"


def prose_of(text: str) -> str:
    """Return a page without its fenced blocks."""
    return re.sub(r"^\s*(`{3,}).*?^\s*\1\s*$", "", text, flags=re.DOTALL | re.MULTILINE)


def code_of(text: str) -> str:
    """Return all code of a page: its blocks, and what stands between backquotes."""
    return "\n".join([*(block.text for block in blocks_of(text)), *re.findall(r"`([^`\n]+)`", prose_of(text))])


def all_code() -> str:
    return "\n".join(code_of(page.read_text()) for page in PAGES)


# What runs


@pytest.fixture
def place() -> Iterator[Path]:
    """Give a page a folder of its own, with a path short enough for sockets."""
    path = Path(tempfile.mkdtemp(prefix="sgd", dir="/tmp" if os.name == "posix" else None))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_runs(page: Path, place: Path) -> None:
    for package in NEEDS.get(page.stem, ()):
        pytest.importorskip(package)
    blocks = blocks_of(page.read_text())
    script = place / f"page_{page.stem}.py"
    script.write_text(script_of(blocks))
    environment = {
        **os.environ,
        "SIGHTGLASS_RUNTIME_DIR": str(place / "runtime"),
        "PYTHONUNBUFFERED": "1",
        "COLUMNS": "100",
    }
    options: dict[str, Any] = {"cwd": place, "env": environment, "text": True, "encoding": "utf-8"}
    beside: list[tuple[Path, subprocess.Popen[str]]] = []
    try:
        for block in blocks:
            if block.title:
                (place / block.title).write_text(block.text)
                child = subprocess.Popen(
                    [sys.executable, "-W", "error", block.title],
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options,
                )  # fmt: skip
                beside.append((place / block.title, child))
                assert child.stdout is not None
                assert child.stdout.readline(), f"{block.title} ended before it said anything"
        done = subprocess.run(
            [sys.executable, "-W", "error", "-W", THEIRS, str(script)],
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
            **options,
        )
        if done.returncode:
            ended = [f"{path.name}:\n{child.communicate()[0][-4000:]}" for path, child in beside if child.poll()]
            why = "\n".join([done.stderr[-4000:], *ended])
            pytest.fail(f"{page.name} (the lines are those of the page):\n{why}")
        assert not done.stderr, done.stderr
        for path, child in beside:
            said, _ = child.communicate(timeout=TIMEOUT_S)
            assert child.returncode == 0, f"{path.name}:\n{said[-4000:]}"
    finally:
        for _, child in beside:
            child.kill()
            child.communicate()


def commands_of(text: str) -> Iterator[list[str]]:
    """Yield the calls of `sightglass` in the console blocks of a page."""
    for block in blocks_of(text):
        for line in block.text.replace("\\\n", " ").split("\n") if block.language == "console" else ():
            if not line.startswith("$ "):
                continue
            words = shlex.split(line[2:], comments=True)
            for stops, part in itertools.groupby(words, key=lambda word: word in ("|", "&&", ";", "&")):
                command = [word for word in part if not stops]
                while command and re.fullmatch(r"[A-Z_]+=.*", command[0]):
                    command.pop(0)
                if command[:1] == ["sightglass"]:
                    yield list(itertools.takewhile(lambda word: word not in (">", ">>", "<", "2>"), command[1:]))


def check_command(words: list[str]) -> None:
    """Let click read a command, without running it."""
    if words in (["--version"], ["--help"], []):
        return
    if words[0] == "--hub":
        words = words[2:]
    verb = cli.main.commands.get(words[0])
    assert verb is not None, f"sightglass {words[0]}: no such verb"
    try:
        context = verb.make_context(words[0], words[1:])
    except click.ClickException as error:
        raise AssertionError(f"sightglass {shlex.join(words)}: {error.format_message()}") from None
    for query in context.params.get("queries", ()):
        sg.parse(query)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_exist(page: Path) -> None:
    for words in commands_of(page.read_text()):
        check_command(words)


def test_the_checks_see_what_is_wrong() -> None:
    page = "text\n```console\n$ A=1 sightglass watch r b.x --no-such | jq\n$ sightglass nope > f\n```\n"
    wrong = list(commands_of(page))
    assert wrong == [["watch", "r", "b.x", "--no-such"], ["nope"]]
    for words in wrong:
        with pytest.raises(AssertionError):
            check_command(words)
    assert (
        script_of(blocks_of("a\n\n```python\nx = 1\n```\nb\n```python\ny = 2\n```\n")) == "\n\n\nx = 1\n\n\n\ny = 2\n"
    )
    assert prose_of("a `b`\n```python\nc\n```\nd") == "a `b`\n\nd"


# Links


def anchors_of(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose_of(text), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "ARCHITECTURE.md"], ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose_of(page.read_text())):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.is_relative_to(ROOT), target
        assert file.exists(), f"{page.name}: {target}"
        if anchor:
            assert anchor in anchors_of(file.read_text()), f"{page.name}: {target}"


def test_the_index_names_every_page() -> None:
    index = (DOCS / "index.md").read_text()
    assert {page.name for page in DOCS.glob("*.md")} - {"index.md"} == set(re.findall(r"\]\(([\w-]+\.md)\)", index))


# What must be told


def test_every_public_name_is_told() -> None:
    told = set(re.findall(r"\bsg\.(\w+)", all_code()))
    assert set(sg.__all__) - told == set()
    assert told - set(sg.__all__) == set()


@pytest.mark.parametrize("kind", [sg.Run, RemoteRun, Stream, Statistics, sg.Record, sg.RunInfo])
def test_every_member_is_told(kind: type) -> None:
    code = all_code()
    members = [name for name in vars(kind) if not name.startswith("_")]
    assert members
    assert [name for name in members if not re.search(rf"\b{name}\b", code)] == []


@pytest.mark.parametrize(("word", "kind"), [("client", RemoteRun), ("stream", Stream), ("view", TerminalView)])
def test_what_is_told_exists(word: str, kind: type) -> None:
    told = set(re.findall(rf"\b{word}\.([a-z]\w*)", all_code()))  # in capitals: a constant of a module
    assert told
    known = {*dir(kind)}.union(*map(dir, surfaces())) if kind is TerminalView else {*dir(kind)}
    # A note belongs to each instance, and so do the events of a run.
    assert told - known <= ({"note"} if kind is Stream else {"batch"} if kind is RemoteRun else set())


def surfaces() -> list[type]:
    """Return the views of all surfaces."""
    return [getattr(importlib.import_module(module), name) for module, name in SURFACES.values()]


def test_views_have_the_same_methods_on_every_surface() -> None:
    methods = [name for name in vars(View) if not name.startswith("_")]
    assert methods
    assert [(kind.__name__, name) for kind in surfaces() for name in methods if not hasattr(kind, name)] == []


def test_every_argument_of_init_is_told() -> None:
    page = (DOCS / "emit.md").read_text()
    assert [name for name in inspect.signature(init).parameters if f"| `{name}` |" not in page] == []


def test_every_verb_and_option_is_told() -> None:
    page = (DOCS / "terminal.md").read_text()
    told = list(commands_of(page))
    assert set(cli.main.commands) == {words[0] for words in told if words and not words[0].startswith("-")}
    options = {name for verb in cli.main.commands.values() for param in verb.params if isinstance(param, click.Option)
               for name in param.opts if name.startswith("--")}  # fmt: skip
    options -= {"--records"}  # told as -n
    assert [option for option in sorted(options) if option not in page] == []
    for code in (group.EXIT_FAILED, group.EXIT_NO_RUN, group.EXIT_INTERRUPTED):
        assert f"| {code} |" in page


def test_every_view_error_and_window_is_told() -> None:
    views, clients, queries = ((DOCS / name).read_text() for name in ("views.md", "clients.md", "queries.md"))
    assert [view for view in VIEWS if f"`{view}`" not in views] == []
    assert [option for option in OPTION_NAMES if f"`{option}`" not in views] == []
    assert [surface for surface in SURFACES if surface not in views] == []
    public = [name for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, Exception)]
    assert [name for name in public if name in sg.__all__ and f"`sg.{name}`" not in clients] == []
    assert [name for name in WINDOWS if f"`{name}=" not in queries] == []
    operators = {*BINARY, *UNARY}
    assert [operator for operator in operators if operator not in queries.replace("&#124;", "|")] == []


# Numbers

CONSTANT = re.compile(r"^\| `([a-z]\w*)\.([A-Z][A-Z_]*)` \| ([^|]+) \|", re.MULTILINE)
MENTIONED = re.compile(r"`([a-z]\w*)\.([A-Z][A-Z_]+)`")
UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
UNITS_S = {"s": 1.0, "ms": 1e-3}


def constant(module: str, name: str) -> float:
    """Return a constant of the package by the name of its module, which may be in any folder."""
    parts = [path.relative_to(PACKAGE).with_suffix("").parts for path in PACKAGE.rglob(f"{module}.py")]
    modules = [importlib.import_module(".".join(("sightglass", *path))) for path in parts]
    values = {getattr(module, name) for module in modules if hasattr(module, name)}
    assert len(values) == 1, f"{module}.{name}: expected one constant, found {len(values)}"
    return values.pop()


def value_of(name: str, told: str) -> float:
    """Read a number as the tables write it, in the unit that the constant's name tells."""
    number, _, unit = told.strip().replace(",", "").partition(" ")
    value = float(number)
    if name.endswith(("_S", "_MS")):
        return value * UNITS_S[unit] * (1000 if name.endswith("_MS") else 1)
    return value * UNITS[unit] if unit else value


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_constants_have_the_values_told(page: Path) -> None:
    told = CONSTANT.findall(page.read_text())
    wrong = {
        f"{module}.{name}": (text, actual)
        for module, name, text in told
        if value_of(name, text) != pytest.approx(actual := constant(module, name))
    }
    assert wrong == {}
    mentioned = set(MENTIONED.findall(page.read_text()))
    assert mentioned <= {(module, name) for module, name, _ in told} or page.stem in ("README", "index")


def test_values_are_read() -> None:
    assert value_of("MAX_BYTES", "64 MiB") == 2**26
    assert value_of("PING_MS", "3 s") == 3000
    assert value_of("WAIT_S", "0.2 ms") == pytest.approx(2e-4)
    assert value_of("MAX_ROWS", "4,096") == 4096


# The wire


def message_types() -> list[type[messages.Message]]:
    return messages.Message.__subclasses__()


@pytest.mark.parametrize("message", message_types(), ids=lambda kind: kind.__name__)
def test_every_message_has_its_fields_in_order(message: type[messages.Message]) -> None:
    tag = message.__struct_config__.tag  # type: ignore[attr-defined]
    rows = re.findall(rf"^\| `{tag}` \| (.*?)\| ", (DOCS / "wire.md").read_text(), re.MULTILINE)
    assert len(rows) == 1
    assert re.findall(r"`(\w+)`", rows[0]) == list(message.__struct_fields__)
    # In brackets stand the fields that have a default, and only these.
    optional = re.findall(r"`(\w+)`", rows[0].partition("[")[2])
    n_defaults = len(message.__struct_defaults__)  # type: ignore[attr-defined]
    assert optional == list(message.__struct_fields__[len(message.__struct_fields__) - n_defaults :])


def test_directions_are_right() -> None:
    page = (DOCS / "wire.md").read_text()
    parts = re.split(r"^### (?:From a client|From the run|Both ways)$|^## Blocks$", page, flags=re.MULTILINE)
    told = [set(re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE)) for part in parts[1:4]]
    tags = [
        {kind.__struct_config__.tag for kind in union.__args__} for union in (messages.FromClient, messages.FromRun)
    ]  # type: ignore[attr-defined]
    client, run = tags
    assert told == [client - run, run - client, client & run]


def test_values_are_told() -> None:
    page = (DOCS / "wire.md").read_text()
    tree = ast.parse(Path(codec.__file__).read_text())
    (names,) = (
        [name.id for name in node.targets[0].elts]  # type: ignore[attr-defined]
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple)
    )
    assert (
        [f"| `codec.{name}` | {getattr(codec, name)} |" in page for name in names] == [True] * len(names) == [True] * 7
    )
    for name, fields in {
        **{kind: kind_.__slots__ for kind, kind_ in codec.KINDS.items()},
        "Histogram": (1,) * 5,
    }.items():
        (row,) = re.findall(rf"^\| `{name}` \| (.*) \|$", page, re.MULTILINE)
        assert len(row.split(",")) == len(fields)


@pytest.mark.parametrize("kind", [Description, StreamInfo, HistoryEntry])
def test_replies_are_told(kind: type[msgspec.Struct]) -> None:
    page = (DOCS / "wire.md").read_text()
    assert ", ".join(f"`{name}`" for name in kind.__struct_fields__) in " ".join(page.split())


def test_the_connection_file_is_told(tmp_path: Path) -> None:
    address = Address(endpoint="tcp://h:1", server="s", client=Keys(public="p", secret="x"))
    write_connection(tmp_path / "c.json", address, run="r", id="i")
    assert read_connection(tmp_path / "c.json") == ("r", "i", address)
    names = re.findall(r'"(\w+)":', (tmp_path / "c.json").read_text())
    page = (DOCS / "wire.md").read_text()
    assert [name for name in names if f"`{name}`" not in page] == []


# The page of functions


def functions_page() -> str:
    """Write the reference of functions and reducers from the tables of the query language."""
    results = function_examples.answers()

    def example(table: Mapping[str, str], name: str) -> str:
        assert name in table, f"{name}: add an example to tests/meta/function_examples.py"
        return _cell(function_examples.example_of(table[name], results))

    lines = [
        "# Functions and reducers",
        "",
        "Made from the tables in the code by `python tests/meta/test_docs.py`.",
        "[queries.md](queries.md) shows how to use them.",
        "",
        "## Functions",
        "",
        "They compute within one event, on numbers and on arrays of any library, where the array is.",
        "Write them behind their first argument, `b.x.mean()`, or in front, `sg.fn.mean(b.x)`;",
        "in text without a prefix, `mean(batch.x)`. NumPy's functions of the same name may be used instead,",
        "`np.sqrt(b.x)`, and `abs` and `round` are Python's. `axis=None` stands for the whole array.",
        "",
        "The examples are answered by a run whose events have `x=[3, 1, 2]`, `w=[[1, 2], [3, 4]]`, `y=[0, 2, 1, 2]`,",
        "`odd=[1, nan, inf]`, `grads={'dense': [3, 4], 'out': [0, 1]}` and `name='dense/kernel'`; over four of them,",
        "`loss` is 0.5, 0.25, 0.75, 0.25 and `label` cat, dog, cat, dog. Results have four digits here.",
        "",
        "| function | | example |",
        "| --- | --- | --- |",
        *(f"| `{_cell(function.signature)}` | {_cell(function.doc)} "
          f"| {example(function_examples.FUNCTION_EXAMPLES, name)} |" for name, function in FUNCTIONS.items()),
        "",
        "`nan` and `inf` are constants in text; in Python they are `math.nan` and `math.inf`.",
        "",
        "## Attributes",
        "",
        f"Of arrays: {_names(ARRAY_ATTRIBUTES)}. Of histograms: {_names(HISTOGRAM_ATTRIBUTES)}.",
        "",
        "## Reducers",
        "",
        "They make one value of many events. Each takes a window besides: one of "
        + ", ".join(f"`{name}=`" for name in WINDOWS) + ", or none; and `by=`, what the values are grouped by.",
        "",
        "| reducer | of | | example |",
        "| --- | --- | --- | --- |",
        *(f"| `{_cell(_signature(name))}` | {ENTRIES[name].takes} | {_cell(_first_line(getattr(Chain, name)))} "
          f"| {example(function_examples.REDUCER_EXAMPLES, name)} |" for name in REDUCERS),
        "",
        "## Values that depend on those before",
        "",
        "They give a value for each value, and take no window.",
        "",
        "| stage | of | | example |",
        "| --- | --- | --- | --- |",
        *(f"| `{_cell(_signature(name))}` | {ENTRIES[name].takes if name in ENTRIES else 'anything'} "
          f"| {_cell(_first_line(getattr(Chain, name)))} | {example(function_examples.STAGE_EXAMPLES, name)} |"
          for name in SEQUENTIAL),
        "",
        "## Two events",
        "",
        "[queries.md](queries.md#two-events) explains them; it stands directly behind `on`.",
        "",
        "| stage | |",
        "| --- | --- |",
        f"| `on('batch').join('epoch')` | {_cell(_first_line(Query.join))} |",
        "",
    ]  # fmt: skip
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "&#124;")


def _names(names: tuple[str, ...]) -> str:
    return " ".join(f"`.{name}`" for name in names)


def _signature(name: str) -> str:
    """Write how a reducer is called, its window left out."""
    params = list(inspect.signature(getattr(Chain, name)).parameters.values())[1:]
    plain = [p for p in params if p.kind is not p.VAR_KEYWORD]
    shown = [p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in plain]
    return f"{name}({', '.join(shown)})"


def _first_line(function: Any) -> str:
    return (inspect.getdoc(function) or "").partition("\n\n")[0].replace("\n", " ")


MADE_PAGES = {FUNCTIONS_PAGE: functions_page, DOCS / "questions.md": lambda: "\n".join(questions.page())}


@pytest.mark.parametrize("page", MADE_PAGES, ids=lambda page: page.stem)
def test_pages_that_are_made_are_up_to_date(page: Path) -> None:
    written = page.read_text() if page.exists() else ""
    assert written == MADE_PAGES[page](), "run: PYTHONPATH=. python tests/meta/test_docs.py"


def test_fifty_questions_are_answered() -> None:
    queries = [query for section in questions.QUESTIONS.values() for query in section.values()]
    assert len(queries) == len(set(queries)) >= 50


def test_translations_are_queries() -> None:
    rows = re.findall(r"^\|.*\| ([^|]*) \|$", (DOCS / "coming-from.md").read_text(), re.MULTILINE)
    queries = [query for row in rows for query in re.findall(r"`((?:batch|epoch|on\()[^`]*)`", row)]
    assert len(queries) > 20
    for query in queries:
        sg.parse(query.replace("&#124;", "|"), functions=())


if __name__ == "__main__":
    for path, made in MADE_PAGES.items():
        path.write_text(made())
        print(f"wrote {path.relative_to(ROOT)}")
