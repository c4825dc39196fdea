"""Read a plotter's options from a configuration file.

Every key that concerns figures is checked; all other keys are ignored.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sightglass.core.errors import MissingExtraError, UnknownNameError

OPTIONS: Final[Mapping[str, tuple[type, ...]]] = {
    "save": (bool, str, list),
    "renderer": (str,),
    "on_full": (str,),
    "on_error": (str,),
    "inputs": (bool,),
    "theme": (str, dict),
    "dpi": (int, float),
    "max_jobs": (int,),
    "max_bytes": (int,),
    "limit_s": (int, float),
}


def read(config: str | os.PathLike[str] | Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `Plotter` that a configuration sets, and its `save_dir`.

    Args:
        config: A YAML file's path, or a mapping.

    Raises:
        MissingExtraError: PyYAML is needed and not installed.
        UnknownNameError: A key under `logging.plots` is not an option.
        ValueError: A value has the wrong type, or the file is not a mapping.
    """
    where = "the configuration" if isinstance(config, Mapping) else str(config)
    tree = config if isinstance(config, Mapping) else _parsed(Path(config))
    logging = _part(tree, "logging", where)
    plots = _part(logging, "plots", f"{where}: logging")
    options: dict[str, Any] = {}
    for name, value in plots.items():
        if name not in OPTIONS:
            raise UnknownNameError("option", name, OPTIONS, where=f"under logging.plots in {where}")
        kinds = OPTIONS[name]
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            expected = " or ".join(kind.__name__ for kind in kinds)
            raise ValueError(f"Expected {expected} as logging.plots.{name} in {where}, got {value!r}")
        options[name] = value
    near = [name for name in logging if name != "plots" and str(name).lower() in ("plot", "figures", "figure")]
    if near:
        raise UnknownNameError("option", near[0], ["plots"], where=f"under logging in {where}")
    folder = _folder(tree, where)
    return options if folder is None else {**options, "save_dir": folder}


def _folder(tree: Mapping[str, Any], where: str) -> Path | None:
    """Return {root}/{project}/{group}/{run_name}, without the parts that are missing; `None` without a root."""
    root = _part(tree, "cluster", where).get("root")
    parts = [tree.get(name) for name in ("project", "group", "run_name")]
    for name, part in zip(("cluster.root", "project", "group", "run_name"), (root, *parts), strict=True):
        if part is not None and not isinstance(part, str | int):
            raise ValueError(f"Expected text as {name} in {where}, got {part!r}")
    if root is None:
        return None
    return Path(os.path.expandvars(str(root))).expanduser().joinpath(*(str(part) for part in parts if part is not None))


def _part(tree: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    part = tree.get(name)
    if part is None:
        return {}
    if not isinstance(part, Mapping):
        raise ValueError(f"Expected a mapping as {name} in {where}, got {part!r:.100}")
    return part


def _parsed(path: Path) -> Mapping[str, Any]:
    try:
        import yaml
    except ImportError:
        raise MissingExtraError("pyyaml", extra="plot", purpose="Reading a configuration") from None
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(f"Expected YAML in {path}: {error}") from error
    if tree is not None and not isinstance(tree, Mapping):
        raise ValueError(f"Expected a mapping in {path}, got {type(tree).__name__}")
    return tree or {}
