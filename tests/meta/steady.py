"""Finds what makes tests unsteady: durations of the real clock, waits beside `tests.waiting`, and random pauses.

It reads syntax trees, those of the programs in strings that tests start included.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
# The wait itself, a command that works for as long as it is asked to, and the test of this module.
NOT_TESTS = ("waiting.py", "simulation/__main__.py", "meta/test_steady.py")
CLOCKS = {"monotonic", "perf_counter", "time", "process_time", "thread_time"}
CLOCKS |= {f"{name}_ns" for name in CLOCKS}
PAUSES = {"sleep", "wait_for_timeout"}
RANDOM = {"random", "uniform", "expovariate", "randint", "randrange", "gauss", "normal", "exponential", "integers"}
DURATION, WAIT, PAUSE = "compares a time of the real clock", "waits beside tests.waiting", "pauses at random"


def found() -> list[str]:
    """Return the places in all tests."""
    paths = [path for path in sorted(TESTS.rglob("*.py")) if str(path.relative_to(TESTS)) not in NOT_TESTS]
    return [f"tests/{path.relative_to(TESTS)}:{where}" for path in paths for where in places(path.read_text("utf-8"))]


def places(text: str, first_line: int = 1) -> list[str]:
    """Return the lines of a program that make it unsteady, and why, in their order."""
    tree = ast.parse(text)
    times = _names_of_times(tree)
    lines = []
    for node in ast.walk(tree):
        line = first_line + getattr(node, "lineno", 1) - 1
        match node:
            case ast.Compare() if _tells_time(node, times):
                lines.append((line, DURATION))
            case ast.While() if _only_waits(node):
                lines.append((line, WAIT))
            case ast.Call(args=[argument, *_]) if _is_pause(node) and RANDOM & set(_names(argument)):
                lines.append((line, PAUSE))
    inside = [where for program, line in _programs(tree) for where in places(program, first_line + line - 1)]
    return [f"{line}: {why}" for line, why in sorted(lines)] + inside


def _names_of_times(tree: ast.AST) -> set[str]:
    """Return the names, of variables and attributes, that stand for a time of the real clock."""
    times: set[str] = set()
    n = -1
    while n < (n := len(times)):  # until no name is new: a deadline is the sum of a time and a limit
        for node in ast.walk(tree):
            match node:
                case ast.Assign(targets=targets, value=value) if _tells_time(value, times):
                    pairs = [pair for target in targets for pair in _pairs(target, value)]
                    times |= {name for one, told in pairs if _tells_time(told, times) for name in _names(one)[-1:]}
                case ast.NamedExpr(target=ast.Name(id=name), value=value) if _tells_time(value, times):
                    times.add(name)
    return times


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    match target, value:
        case (ast.Tuple(elts=targets), ast.Tuple(elts=values)) if len(targets) == len(values):
            return list(zip(targets, values, strict=True))
    return [(target, value)]


def _tells_time(node: ast.AST, times: set[str]) -> bool:
    """Return whether a time of the real clock is part of an expression, outside of what is called with it."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="time"), attr=name) | ast.Name(id=name)) if name in CLOCKS:
            return not node.args
        case ast.Call(func=ast.Name(id="abs" | "min" | "max" | "round" | "float" | "int")):
            return any(_tells_time(argument, times) for argument in node.args)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in times
        case ast.BinOp(left=left, right=right):
            return _tells_time(left, times) or _tells_time(right, times)
        case ast.Compare(left=left, comparators=others):
            return any(_tells_time(one, times) for one in (left, *others))
        case ast.Tuple(elts=elements):
            return any(_tells_time(one, times) for one in elements)
    return False


def _only_waits(loop: ast.While) -> bool:
    """Return whether a loop pauses, and does nothing else but look and complain."""
    pauses = [node for node in ast.walk(loop) if isinstance(node, ast.Call) and _is_pause(node)]
    return bool(pauses) and all(
        isinstance(step, ast.Pass | ast.Assert | ast.If | ast.Break)
        or (isinstance(step, ast.Expr) and isinstance(step.value, ast.Call) and _is_pause(step.value))
        for step in loop.body
    )


def _is_pause(call: ast.Call) -> bool:
    match call.func:
        case ast.Attribute(value=ast.Name(id="time" | "asyncio"), attr="sleep") | ast.Name(id="sleep"):
            return True
        case ast.Attribute(attr="wait_for_timeout"):
            return True
    return False


def _names(node: ast.AST) -> list[str]:
    """Return the names in an expression, an attribute's own name last."""
    match node:
        case ast.Name(id=name):
            return [name]
        case ast.Attribute(value=value, attr=name):
            return [*_names(value), name]
    return [name for child in ast.iter_child_nodes(node) for name in _names(child)]


def _programs(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the programs in strings, with the line of the string."""
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if "\n" in text:
                program = textwrap.dedent(text)
            case ast.JoinedStr(values=values):
                program = "".join(str(v.value) if isinstance(v, ast.Constant) else "_" for v in values)
            case _:
                continue
        try:
            ast.parse(program)
        except SyntaxError:
            continue
        yield program, node.lineno
