"""The size and shape of the code: files, lines, names used twice, untyped parameters, odd idioms, import circles.

`python -m bench code` prints the counts, `python -m bench.code` the places behind them.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

from bench import sizes

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "sightglass"
FRONTEND = ROOT / "frontend" / "src"
MAX_FILES, MAX_LINES = 400, 84_500  # of src
# Phrases that make a reader read twice: "the budget is none", "it is no number". "There is no run" is plain English.
IDIOMS = re.compile(
    r"\b(?:but for|whoever|whomever|be it|of ours|of theirs|for ever|anew|whereof|thereof"
    r"|(?<![Tt]here )(?:is|are) (?:none\b|no (?!longer\b|more\b)\w+))\b"
)
TYPESCRIPT_IMPORT = re.compile(r"""^(?:import|export)\b[^'"]*?from\s*['"](\.[^'"]*)['"]""", re.MULTILINE | re.DOTALL)


def measure() -> Iterator[tuple[str, float, str, float | None]]:
    """Yield one row for each count."""
    for part in sizes.parts():
        yield from _sizes(part.name, part.size(), part.budget)
    package = sum((sizes.size_of(path) for path in PACKAGE.rglob("*.py")), sizes.Size())
    yield "files of src", package.files, "", MAX_FILES
    yield from _sizes("src", package, MAX_LINES)
    for folder in ("tests", "bench", "examples"):
        found = sum((sizes.size_of(path) for path in (ROOT / folder).rglob("*.py")), sizes.Size())
        yield from _sizes(folder, found, None)
    docs = sum(path.read_text("utf-8").count("\n") for path in [*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")])
    yield "docs: lines", docs, "", None
    yield "public class names used twice", len(repeated_names()), "", 5
    n_any, n_parameters = (sum(n) for n in zip(*parameters().values(), strict=True))
    yield f"parameters typed Any, of {n_parameters:,}", 100 * n_any / n_parameters, "%", 5
    n_named, _ = (sum(n) for n in zip(*parameters(aliases()).values(), strict=True))
    yield "  with a name for any value: " + ", ".join(sorted(aliases())), 100 * n_named / n_parameters, "%", None
    yield "odd idioms in docstrings and messages", len(idioms()), "", 5
    yield "circles of imports", len(circles(imports())) + len(circles(frontend_imports())), "", 0


def _sizes(name: str, size: sizes.Size, budget: int | None) -> Iterator[tuple[str, float, str, float | None]]:
    yield f"{name}: {size.files} files, lines", size.lines, "", budget
    yield "  lines of code", size.code, "", None


def repeated_names() -> dict[str, list[str]]:
    """Return the public classes at the top of modules that share a name, with their modules."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path, tree in trees():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(path)
    return {name: found for name, found in sorted(places.items()) if len(found) > 1}


def aliases() -> set[str]:
    """Return the names that the package gives to `Any` where a value may be of any type, such as what users observe."""
    found: set[str] = set()
    for _, tree in trees():
        for node in tree.body:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name(id="Any")):
                    found.add(name)
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.Name(id="Any")):
                    found.add(name)
    return found


def parameters(names: Collection[str] = ("Any",)) -> dict[str, tuple[int, int]]:
    """Return for each module how many parameters are annotated with one of the names alone, and how many there are."""
    counted = {}
    for path, tree in trees():
        found = [
            argument for node in ast.walk(tree) if isinstance(node, ast.arguments) for argument in _arguments(node)
        ]
        typed = [argument for argument in found if argument.annotation is not None]
        n_any = sum(isinstance(a.annotation, ast.Name) and a.annotation.id in names for a in typed)
        counted[path] = (n_any, len(typed))
    return counted


def idioms() -> list[str]:
    """Return the places of odd idioms in docstrings and in texts that the library shows."""
    found = []
    for path, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                found += [f"{path}:{node.lineno}: {match}" for match in IDIOMS.findall(node.value)]
    return found


def imports() -> dict[str, set[str]]:
    """Return which modules of the package each module imports, at any level and for type checkers alike."""
    modules = {path: _dotted(path) for path, _ in trees()}
    known = set(modules.values())
    graph = {}
    for path, tree in trees():
        package = modules[path] if path.endswith("__init__.py") else modules[path].rpartition(".")[0]
        imported: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                base = _base(node, package)
                imported |= {f"{base}.{a.name}" if f"{base}.{a.name}" in known else base for a in node.names}
            elif isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
        graph[modules[path]] = (imported & known) - {modules[path], "sightglass"}
    return graph


def frontend_imports() -> dict[str, set[str]]:
    """Return which modules of the page each module imports."""
    paths = {path.with_suffix("") for path in FRONTEND.rglob("*") if path.suffix in {".ts", ".tsx"}}
    graph = {}
    for path in FRONTEND.rglob("*"):
        if path.suffix in {".ts", ".tsx"}:
            targets = {(path.parent / name).resolve() for name in TYPESCRIPT_IMPORT.findall(path.read_text())}
            targets |= {target / "index" for target in targets}
            targets = {target.with_suffix("") if target not in paths else target for target in targets}
            graph[str(path.with_suffix("").relative_to(FRONTEND))] = {
                str(target.relative_to(FRONTEND)) for target in targets & paths
            }
    return graph


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other: strongly connected components (Tarjan, 1972)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        number[module] = low[module] = len(number)
        stack.append(module)
        for other in sorted(graph.get(module, ())):
            if other not in number:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], number[other])
        if low[module] == number[module]:
            group = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(group) > 1:
                found.append(sorted(group))

    for module in sorted(graph):
        if module not in number:
            visit(module)
    return found


@cache
def trees() -> list[tuple[str, ast.Module]]:
    """Return the path and the syntax tree of each module of the package."""
    return [
        (str(path.relative_to(PACKAGE)), ast.parse(path.read_text("utf-8"))) for path in sorted(PACKAGE.rglob("*.py"))
    ]


def _dotted(path: str) -> str:
    return ".".join(("sightglass", *path.removesuffix(".py").split("/"))).removesuffix(".__init__")


def _base(node: ast.ImportFrom, package: str) -> str:
    above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
    return ".".join([*above, *([node.module] if node.module else [])])


def _arguments(node: ast.arguments) -> list[ast.arg]:
    rest = [argument for argument in (node.vararg, node.kwarg) if argument is not None]
    return [*node.posonlyargs, *node.args, *node.kwonlyargs, *rest]


def main() -> None:
    """Print the places behind the counts."""
    for name, paths in repeated_names().items():
        print(f"class {name}: {', '.join(paths)}")
    for path, (n_any, n_parameters) in sorted(parameters().items(), key=lambda item: -item[1][0]):
        if n_any:
            print(f"Any: {path}: {n_any} of {n_parameters}")
    print(*idioms(), sep="\n")
    for group in [*circles(imports()), *circles(frontend_imports())]:
        print(f"circle: {', '.join(group)}")


if __name__ == "__main__":
    main()
