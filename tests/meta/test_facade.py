"""The public face: every name is there and documented, nothing foreign is loaded with it."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import sightglass

pytestmark = pytest.mark.smoke

FOREIGN = """
import json, sys
before = set(sys.modules)
{code}
roots = {{name.partition(".")[0] for name in set(sys.modules) - before}}
print(json.dumps(sorted(roots - sys.stdlib_module_names - {{"sightglass"}})))
"""


def foreign(code):
    """Return the third-party packages that some code loads in a fresh interpreter."""
    told = subprocess.run([sys.executable, "-c", FOREIGN.format(code=code)], check=True, capture_output=True, text=True)
    return json.loads(told.stdout)


def test_importing_loads_nothing_foreign():
    assert foreign("import sightglass; dir(sightglass); sightglass.__version__") == []


@pytest.mark.parametrize("extra", ["torch", "jax", "flax"])
def test_a_part_whose_library_is_missing_names_what_to_install(extra):
    code = f"import sys; sys.modules[{extra!r}] = None; import sightglass.{extra}"
    told = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert told.stderr.endswith(f"sightglass.{extra} needs {extra!r}: pip install 'sightglass[{extra}]'\n")


def test_what_is_foreign_would_be_seen():
    assert "numpy" in foreign("import sightglass; sightglass.on")
    assert foreign("import json") == []


@pytest.mark.parametrize("name", sightglass.__all__)
def test_every_name_is_there_and_documented(name):
    value = getattr(sightglass, name)
    assert name in dir(sightglass)
    if name != "__version__":
        assert inspect.getdoc(value)


def test_an_unknown_name_is_no_attribute():
    with pytest.raises(AttributeError, match=r"'sightglass'.*'nothing'"):
        sightglass.nothing


def test_the_imports_for_type_checkers_equal_the_table():
    tree = ast.parse(Path(sightglass.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    told = {alias.asname: node.module for node in block.body for alias in node.names}
    assert all(alias.asname == alias.name for node in block.body for alias in node.names)
    assert told == sightglass._MODULES
    assert sorted([*told, "__version__"]) == sightglass.__all__


def modules():
    return [
        info.name for info in pkgutil.walk_packages(sightglass.__path__, "sightglass.") if "__main__" not in info.name
    ]


def members(owner, home):
    """Yield the public functions and classes that are defined here, and their methods."""
    for name, value in vars(owner).items():
        value = inspect.unwrap(value) if callable(value) else value
        value = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if name.startswith("_") or getattr(value, "__module__", home) != home or told_by_a_base(owner, name):
            continue
        if inspect.isclass(value):
            yield f"{owner.__name__}.{name}", value
            yield from members(value, home)
        elif inspect.isfunction(value) or isinstance(value, property):
            yield f"{owner.__name__}.{name}", value


def told_by_a_base(owner, name):
    """Tell whether a class that this one is made from says what the member does."""
    bases = owner.__mro__[1:-1] if inspect.isclass(owner) else ()
    return any(getattr(vars(base).get(name), "__doc__", None) for base in bases)


def undocumented(module):
    found = [] if module.__doc__ else [module.__name__]
    return found + [name for name, value in members(module, module.__name__) if not inherited_doc(value)]


def inherited_doc(value):
    return value.__doc__ and not value.__doc__.startswith(f"{getattr(value, '__name__', '')}(")


@pytest.mark.parametrize("name", modules())
def test_everything_public_is_documented(name):
    assert undocumented(importlib.import_module(name)) == []


def test_what_is_undocumented_would_be_seen():
    from types import ModuleType

    module = ModuleType("module")
    exec(compile("class A:\n    def b(self): ...\ndef c():\n    'Do it.'", "x", "exec"), vars(module))
    assert undocumented(module) == ["module", "module.A", "A.b"]
