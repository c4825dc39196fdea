"""The project of a run: a folder that is served, or, where only one is, a folder in it; or that of a hub."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

MAX_CACHED: Final = 100_000  # a list of so many runs is made each second


@functools.lru_cache(MAX_CACHED)
def project_of(directory: str, roots: tuple[Path, ...]) -> str:
    """Return the project of a run directory, or an empty text outside of the folders.

    >>> project_of("/runs/mnist/a", (Path("/runs"),)), project_of("/runs/b", (Path("/runs"),))
    ('mnist', 'runs')
    >>> project_of("/runs/mnist/a", (Path("/runs/mnist"), Path("/runs/cifar")))
    'mnist'
    """
    path = Path(directory)
    for root, name in zip(roots, names_of(roots), strict=True):
        if path.is_relative_to(root):
            parts = path.relative_to(root).parts
            return parts[0] if len(roots) == 1 and len(parts) > 1 else name
    return ""


def names_of(folders: Sequence[Path]) -> list[str]:
    """Return a name for each folder: as many of the last parts of its path as tell it from the others.

    >>> names_of([Path("/a/runs"), Path("/b/runs"), Path("/c/mnist")])
    ['a/runs', 'b/runs', 'mnist']
    """
    names = [folder.name or str(folder) for folder in folders]
    for n_parts in range(2, max((len(folder.parts) for folder in folders), default=0) + 1):
        shared = {name for name, n in Counter(names).items() if n > 1}
        longer = ["/".join(folder.parts[-n_parts:]) for folder in folders]
        names = [long if name in shared else name for name, long in zip(names, longer, strict=True)]
    return names
