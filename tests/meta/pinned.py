"""Finds sentences that tests pin: prose in what they expect of the text of an error, a warning or a remark.

A test names the class of an error and the thing that it is about; the sentence itself has one place, `messages.txt`.
`python -m tests.meta.pinned` prints what it finds.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parents[1]
MAX_WORDS = 3
WORD = re.compile(r"[A-Za-z][a-z]*")  # MiB, WAV and OSError name things
QUOTED = re.compile(r"(?<!\w)'[^']*'|`[^`]*`|\"[^\"]*\"")
ESCAPED = re.compile(r"\\[A-Za-z]|\.[*+]\??|\|")
THING = " 0 "  # ends a row of words, as a number does

Function = ast.FunctionDef | ast.AsyncFunctionDef


def n_words(text: str) -> int:
    """Return how many words of prose a text or a pattern has in a row; a quoted thing, a number, a stop ends a row.

    >>> n_words(r"^Unknown run 'far' in .*\\. Did you mean 'near'\\?"), n_words("no room for it, got .*")
    (3, 4)
    """
    text = QUOTED.sub(THING, ESCAPED.sub(THING, text).replace("\\", ""))
    longest = row = 0
    for token in re.sub(r"[.,:;?!](?= |$)", THING, text).split():
        row = row + 1 if WORD.fullmatch(token.lstrip("^(").rstrip("$")) else 0
        longest = max(longest, row)
    return longest


def pinned(source: str) -> list[ast.expr]:
    """Return the texts that a module of tests expects of errors, and that have more than three words in a row."""
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, Function)]
    found = {id(node): node for function in functions for node in _expected(function, tree)}
    return [node for node in found.values() if n_words(text_of(node)) > MAX_WORDS]


def text_of(node: ast.expr) -> str:
    """Return the text of a constant or an f-string, with a number in place of each expression."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(str(part.value) if isinstance(part, ast.Constant) else THING for part in parts)
    return ""


def _expected(function: Function, tree: ast.Module) -> Iterator[ast.expr]:
    """Yield what a function passes as `match=`, and what it compares with the text of an error or a remark."""
    for node in ast.walk(function):
        match node:
            case ast.keyword(arg="match", value=text):
                yield from _texts(text, function, tree)
            case ast.Compare(left=text, comparators=[read]) if _told(read):
                yield from _texts(text, function, tree)
            case ast.Compare(left=read, comparators=[text]) if _told(read):
                yield from _texts(text, function, tree)
            case ast.Call(func=ast.Attribute(attr="search" | "match"), args=[text, read]) if _told(read):
                yield from _texts(text, function, tree)
            case ast.Call(func=ast.Attribute(value=read, attr="startswith" | "endswith"), args=[text]) if _told(read):
                yield from _texts(text, function, tree)


def _told(node: ast.expr) -> bool:
    """Return whether an expression is the text of an error, of a warning, or a remark."""
    match node:
        case ast.Call(func=ast.Name(id="str"), args=[ast.Attribute(attr="value" | "last_error" | "message")]):
            return True
        case ast.Attribute(attr="note" | "reason" | "problem" | "error"):
            return True
    return False


def _texts(node: ast.expr, function: Function, tree: ast.Module) -> Iterator[ast.expr]:
    """Yield the texts that an expression may be: those that its names are assigned, loop over, or are called with."""
    match node:
        case ast.Constant():
            yield node
        case ast.JoinedStr(values=parts):
            yield node
            for part in parts:
                if isinstance(part, ast.FormattedValue):
                    yield from _texts(part.value, function, tree)
        case ast.Name(id=name):
            for value in _values(name, function, tree):
                yield from _texts(value, function, tree)
        case ast.Call(func=ast.Attribute(attr="escape"), args=[text]):
            yield from _texts(text, function, tree)
        case ast.BinOp(left=first, right=second) | ast.IfExp(body=first, orelse=second):
            yield from _texts(first, function, tree)
            yield from _texts(second, function, tree)


def _values(name: str, function: Function, tree: ast.Module) -> Iterator[ast.expr]:
    for node in [*ast.walk(function), *tree.body]:
        match node:
            case ast.Assign(targets=[ast.Name(id=assigned)], value=value) if assigned == name:
                yield value
            case ast.For(target=target, iter=ast.List(elts=rows) | ast.Tuple(elts=rows)):
                yield from _column(name, ast.unparse(target), rows)
            case ast.Call(
                func=ast.Attribute(attr="parametrize"), args=[names, ast.List(elts=rows) | ast.Tuple(elts=rows)]
            ):
                yield from _column(name, ast.unparse(names), rows)


def _column(name: str, names: str, rows: list[ast.expr]) -> Iterator[ast.expr]:
    """Yield the values of one name of several, such as of `(query, message)`, in each row."""
    columns = re.findall(r"\w+", names)
    for row in rows if name in columns else []:
        parts = row.args if isinstance(row, ast.Call) else row.elts if len(columns) > 1 else [row]
        yield from parts[columns.index(name) : columns.index(name) + 1]


def places() -> list[str]:
    """Return where tests pin sentences, and which."""
    return [
        f"{path.relative_to(FOLDER)}:{node.lineno}: {text_of(node)}"
        for path in sorted(FOLDER.rglob("*.py"))
        for node in pinned(path.read_text("utf-8"))
    ]


if __name__ == "__main__":
    print(*places(), sep="\n")
