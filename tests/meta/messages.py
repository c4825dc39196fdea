"""The messages of the package, read from its source: `python -m tests.meta.messages` writes them to `messages.txt`.

The file has them by the class of the error or warning, then what reaches a user on other ways: reasons, remarks, hints
and parts of messages. A change of a message shows there, to be read as a text; tests elsewhere name the class and the
thing that a message is about, not its words.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from bench import code

TABLE = Path(__file__).with_name("messages.txt")
HEAD = "Written by `python -m tests.meta.messages`. {name} is a value, {…} is what is computed, ⏎ ends a line.\n"
OTHER = "Reasons, remarks, hints and parts of messages"
CLASS = re.compile(r"[A-Z]\w*(Error|Errors|Warning|Exception|Problem|Exit)")
PROSE = re.compile(r"[A-Za-z'`]+,?(?: [\w'`{}…]+,?){2,}")  # three words or more
# What a program reads: markup, a pattern, code, a policy of a page, a list of fonts, a line of metrics.
FORMAL = re.compile(r"^<|<[/!a-z]|\\[a-zA-Z(\[]|^\s*(?:import|def|from) |[;{]\n|-src '|sans-serif|^# [A-Z]")
NAME = re.compile(r"(?:[A-Z]\w* ?)+")  # such as of a font


def table(trees: Iterable[ast.Module]) -> str:
    """Return the messages of some modules by class, each once and in order, as the text of the table."""
    trees = list(trees)
    makers = {name: made for tree in trees for name, made in _makers(tree)}
    found: defaultdict[str, set[str]] = defaultdict(set)
    for tree in trees:
        for group, message in _messages(tree, OTHER, makers):
            found[group].add(message)
    groups = sorted(found, key=lambda group: (group == OTHER, group))
    return "\n".join([HEAD, *("\n  ".join([group, *sorted(found[group])]) + "\n" for group in groups)])


def _makers(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the functions that make an error for a message, with its class."""
    yield "unknown", "UnknownNameError"
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.FunctionDef)
            and node.returns is not None
            and CLASS.fullmatch(ast.unparse(node.returns))
        ):
            yield node.name, ast.unparse(node.returns)


def _messages(node: ast.AST, group: str, makers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the messages below a node, with their group."""
    match node:
        case ast.Expr(value=ast.Constant()):  # a docstring
            return
        case ast.Constant(value=str()) | ast.JoinedStr() | ast.BinOp(op=ast.Add()) if text := _template(node):
            if _is_prose(text) or (group != OTHER and " " in text.strip()):
                yield group, text.strip().replace("\n", "⏎")
            for inside in _values(node):
                yield from _messages(inside, OTHER, makers)
            return
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=args):
            group = makers.get(name, name if CLASS.fullmatch(name) else OTHER)
            if name in {"warn", "warn_user"}:
                group = ast.unparse(args[1]) if len(args) > 1 else "RuntimeWarning"
    skipped = getattr(node, "decorator_list", [])  # the help of commands and functions is documentation
    for child in ast.iter_child_nodes(node):
        if child not in skipped:
            yield from _messages(child, OTHER if isinstance(child, ast.stmt) else group, makers)


def _is_prose(text: str) -> bool:
    return bool(PROSE.search(text)) and not FORMAL.search(text) and not NAME.fullmatch(text)


def _template(node: ast.AST) -> str:
    """Return a text with its values in braces, "" for what is not a text."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(map(_template, parts))
        case ast.FormattedValue(value=value, conversion=conversion):
            return f"{{{_name(value)}!r}}" if conversion == ord("r") else f"{{{_name(value)}}}"
        case ast.BinOp(left=left, op=ast.Add(), right=right) if _template(left) or _template(right):
            return "".join(_template(part) or f"{{{_name(part)}}}" for part in (left, right))
    return ""


def _name(value: ast.expr) -> str:
    match value:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return "…"


def _values(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the expressions that a text has values of."""
    match node:
        case ast.JoinedStr(values=parts):
            yield from (part.value for part in parts if isinstance(part, ast.FormattedValue))
        case ast.BinOp(left=left, right=right):
            yield from _values(left)
            yield from _values(right)
        case ast.expr() if not isinstance(node, ast.Constant):
            yield node


def main() -> None:
    """Write the table."""
    TABLE.write_text(table(tree for _, tree in code.trees()), "utf-8")


if __name__ == "__main__":
    main()
