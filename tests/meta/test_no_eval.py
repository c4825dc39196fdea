"""No code travels and none is made: no `eval`, `exec`, `pickle` or `__import__` in the package (DESIGN.md, rule 6)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import sightglass

pytestmark = pytest.mark.smoke

PACKAGE = Path(sightglass.__file__).parent
CALLS = {"eval", "exec", "compile", "__import__", "execfile", "breakpoint"}
MODULES = {"pickle", "cPickle", "_pickle", "dill", "marshal", "shelve", "code", "codeop", "cloudpickle", "joblib"}
RENDERER = {"figures/closures.py"}  # sends closures to our own child
LAZY = "__init__.py"  # imports what its own table names


def offences(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(value=ast.Name(id="builtins"), attr=name) if name in CALLS:
                yield f"line {node.lineno}: {name}"
            case ast.Import(names=names):
                yield from (f"line {node.lineno}: {a.name}" for a in names if a.name.split(".")[0] in MODULES)
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] in MODULES and not node.level:
                yield f"line {node.lineno}: {module}"
            case (
                ast.Attribute(attr="literal_eval" | "import_module") | ast.Constant(value="__import__" | "__builtins__")
            ):
                yield f"line {node.lineno}: {ast.unparse(node)}"
            case ast.keyword(arg="allow_pickle", value=ast.Constant(value=True)):
                yield f"line {node.value.lineno}: allow_pickle"


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_module_makes_code_of_data(path: Path) -> None:
    found = list(offences(ast.parse(path.read_text())))
    if path.relative_to(PACKAGE).as_posix() not in RENDERER:
        assert [what for what in found if path != PACKAGE / LAZY or "import_module" not in what] == []


@pytest.mark.parametrize(
    "source",
    ["eval('1')", "exec('1')", "import pickle", "from pickle import loads", "__import__('os')", "builtins.eval('1')",
     "compile('1', '', 'eval')", "np.load(f, allow_pickle=True)", "f = exec", "importlib.import_module(x)"],
)  # fmt: skip
def test_the_walk_finds_them(source: str) -> None:
    assert len(list(offences(ast.parse(source)))) == 1


def test_the_walk_lets_the_rest_be() -> None:
    assert list(offences(ast.parse("re.compile('a'); query.eval(); np.load(f, allow_pickle=False)"))) == []
