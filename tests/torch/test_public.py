"""Nothing private of PyTorch's is used."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import sightglass

pytestmark = pytest.mark.smoke

ROOT = Path(sightglass.__file__).parent
FILES = sorted([*ROOT.glob("torch/*.py"), *ROOT.glob("callbacks/*.py")])
OWN = {"_module", "_optimizer"}


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
    assert list(private(path)) == []


def test_there_are_files_to_look_at():
    assert len(FILES) >= 8
