"""Nothing private of PyTorch's is used but what is listed here, with the reason."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import sightglass

pytestmark = pytest.mark.smoke

ROOT = Path(sightglass.__file__).parent
FILES = sorted([*ROOT.glob("torch/*.py"), *ROOT.glob("callbacks/*.py")])
ALLOWED = {
    # The only call of one module that copies and checkpoints leave out, and that compiled programs do not depend on.
    # Whether it is called as expected is tested in test_copies and test_compiled; a version without it is refused.
    "calls.py": {"_call_impl", "_C", "_dynamo"},
    # PyTorch's generators take most of the time of an answered step.
    "observables.py": {"_parameters", "_modules"},
}


def private(path):
    """Return the private names that a file reads of anything but its own instances, and what it imports of them."""
    tree = ast.parse(path.read_text())
    own = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    own |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            if node.attr not in own:
                yield node.attr
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
            ("torch", "lightning", "transformers")
        ):
            yield from (part for part in (node.module or "").split(".") if part.startswith("_"))
            yield from (alias.name for alias in node.names if alias.name.startswith("_"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_private_name_is_used(path):
    assert {*private(path)} <= ALLOWED.get(path.name, set())


def test_there_are_files_to_look_at():
    assert len(FILES) >= 8
