"""The size of the code by part, and the ratchet that holds it: `python -m bench.sizes`, which `make check` runs.

A line of code is one with a token that is neither a comment nor part of a docstring; generated files have none.
`sizes.toml` has the budget of each part, and what it had when it last landed. A part may not grow past that; one above
its budget may grow by 2 % until it is rebuilt. A fix or a feature raises an entry by hand, with its reason; `--lower`
writes smaller entries.
"""

from __future__ import annotations

import ast
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLE = Path(__file__).with_name("sizes.toml")
MAX_GROWTH = 1.02  # of a part above its budget
SUFFIXES = {".py", ".ts", ".tsx"}
NOT_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
}  # fmt: skip
BLOCK_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """How large something is: files, lines, and lines of code."""

    files: int = 0
    lines: int = 0
    code: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(files=self.files + other.files, lines=self.lines + other.lines, code=self.code + other.code)


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """An entry of the table.

    Attributes:
        name: The part.
        paths: Its folders and files, below the repository.
        budget: How many lines it may have; `None` if it has no budget.
        files: How many files it had when it last landed.
        code: How many lines of code it had then.
        reason: Why the entry was raised last.
    """

    name: str
    paths: tuple[str, ...]
    budget: int | None = None
    files: int
    code: int
    reason: str = ""

    def size(self) -> Size:
        """Return its size now."""
        return sum((size_of(path) for path in self._files()), Size())

    def excess(self, size: Size) -> Iterator[str]:
        """Yield what is wrong with a size."""
        over = self.budget is not None and size.lines > self.budget
        growth = MAX_GROWTH if over else 1.0
        for what, now, landed in (("files", size.files, self.files), ("lines of code", size.code, self.code)):
            if now > (limit := int(landed * growth)):
                yield (
                    f"{self.name}: expected at most {limit:,} {what}, got {now:,}. Make it smaller, or raise the entry "
                    f"in bench/{TABLE.name}, with a reason"
                )
            elif now < landed:
                yield (
                    f"{self.name}: {now:,} {what}, less than the {landed:,} of bench/{TABLE.name}: "
                    "run `python -m bench.sizes --lower`"
                )

    def _files(self) -> Iterator[Path]:
        for one in self.paths:
            path = ROOT / one
            found = [path] if path.is_file() else sorted(path.rglob("*"))
            yield from (file for file in found if file.suffix in SUFFIXES and not _is_generated(file))


def _is_generated(path: Path) -> bool:
    return path.suffix == ".ts" and path.read_text("utf-8").startswith("// Made by ")


def parts() -> list[Part]:
    """Return the entries of the table."""
    return [
        Part(name=name, **{**entry, "paths": tuple(entry["paths"])})
        for name, entry in tomllib.loads(TABLE.read_text("utf-8")).items()
    ]


def size_of(path: Path) -> Size:
    """Return the size of a file of Python or TypeScript."""
    text = path.read_text("utf-8")
    count = n_code_of_python if path.suffix == ".py" else n_code_of_typescript
    return Size(files=1, lines=text.count("\n"), code=count(text))


def n_code_of_python(text: str) -> int:
    """Count the lines with a token that is neither a comment nor part of a docstring."""
    lines = iter(text.splitlines(keepends=True))
    code: set[int] = set()
    for token in tokenize.generate_tokens(lambda: next(lines, "")):
        if token.type not in NOT_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                match node.body[:1]:
                    case [ast.Expr(value=ast.Constant(value=str())) as docstring]:
                        code.difference_update(range(docstring.lineno, (docstring.end_lineno or 0) + 1))
    return len(code)


def n_code_of_typescript(text: str) -> int:
    """Count the lines that hold more than space and comments."""
    blank = BLOCK_COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), text)
    return sum(bool(line) and not line.startswith("//") for line in map(str.strip, blank.splitlines()))


def lower() -> None:
    """Write the entries of parts that became smaller."""
    smaller = {}
    for part in parts():
        size = part.size()
        smaller[part.name] = {"files": min(part.files, size.files), "code": min(part.code, size.code)}
    name, written = "", []
    for line in TABLE.read_text("utf-8").splitlines(keepends=True):
        if line.startswith("["):
            name = line.strip('[]"\n')
        key = line.partition(" = ")[0]
        written.append(f"{key} = {smaller[name][key]}\n" if key in smaller.get(name, ()) else line)
    TABLE.write_text("".join(written), "utf-8")


def main(arguments: list[str]) -> int:
    """Hold the sizes against the table."""
    if arguments == ["--lower"]:
        lower()
    wrong = [line for part in parts() for line in part.excess(part.size())]
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
