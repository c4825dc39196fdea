"""The shape of the code: one name for one thing, no circles, typed parameters, plain English, threads in one place."""

from __future__ import annotations

import ast
import subprocess

import pytest
from bench import code

pytestmark = pytest.mark.smoke


def test_a_class_name_is_used_once() -> None:
    # Each callback has the name that its framework's users look for.
    assert set(code.repeated_names()) <= {"SightglassCallback"}


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert code.circles(code.imports()) == []
    assert code.circles(code.frontend_imports()) == []


MAX_FILE_BYTES = 512 * 2**10  # the page's script is the largest
MAX_MODULES = 12  # of a folder: as many as a reader holds
LARGE_FOLDERS = {
    "figures": "one road from a call to a picture, through a queue and a child process",
    "query": "the stages that a query passes, from its text to its records",
    "server/api": "a module for each family of endpoints",
    "storage/foreign": "a module for each part of three formats of other programs",
    "views": "what all surfaces share",
}


def test_a_folder_is_small_or_has_a_reason() -> None:
    folders = [path.parent.relative_to(code.PACKAGE).as_posix() for path in code.PACKAGE.rglob("[!_]*.py")]
    assert {folder for folder in folders if folders.count(folder) > MAX_MODULES} == set(LARGE_FOLDERS)


def test_the_repository_has_no_large_file() -> None:
    root = code.PACKAGE.parents[1]
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout
    files = [root / name for name in listed.split("\0") if name]
    assert [str(path) for path in files if path.is_file() and path.stat().st_size > MAX_FILE_BYTES] == []


def test_parameters_have_types() -> None:
    n_any, n_parameters = (sum(n) for n in zip(*code.parameters().values(), strict=True))
    assert n_any <= 0.05 * n_parameters


def test_texts_are_plain_english() -> None:
    assert code.idioms() == []


def test_threads_start_in_one_module() -> None:
    assert {path for path, tree in code.trees() if any(starts_thread(node) for node in ast.walk(tree))} == {
        "core/process/threads.py"
    }


def starts_thread(node: ast.AST) -> bool:
    """Return whether a node makes a thread, a timer or a pool."""
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name in {"Thread", "Timer", "ThreadPoolExecutor", "ProcessPoolExecutor", "start_new_thread"}
    return False


# The checks find what they look for.


@pytest.mark.parametrize("text", ["threading.Thread(target=f)", "Timer(1, f)", "futures.ThreadPoolExecutor(2)"])
def test_a_thread_would_be_found(text: str) -> None:
    assert any(starts_thread(node) for node in ast.walk(ast.parse(text)))


@pytest.mark.parametrize("text", ["The budget is none.", "It is no number.", "nothing but for this", "whoever asks"])
def test_an_idiom_would_be_found(text: str) -> None:
    assert code.IDIOMS.search(text)


@pytest.mark.parametrize(
    "text", ["It is not a number.", "The run is no longer live.", "There is no run.", "`mode` is None."]
)
def test_plain_sentences_pass(text: str) -> None:
    assert not code.IDIOMS.search(text)


def test_a_circle_would_be_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}
    assert code.circles(graph) == [["a", "b", "c"]]
    assert code.circles({"a": {"b"}, "b": {"c"}, "c": set()}) == []


def test_imports_are_seen_at_every_level() -> None:
    assert "sightglass.client.streams.stream" in code.imports()["sightglass.client.run"]
