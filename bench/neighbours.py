"""Other trackers: programs with ours in their place, and their files as their own readers read them.

Of forty programs, how many record what they record with W&B itself; of the situations in `tests/foreign/catalogue.py`,
in how many every number is the one that the library reads.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.foreign import catalogue
from tests.trackers import wandb_twins


def measure() -> Iterator[tuple[str, float, str, float | None]]:
    with tempfile.TemporaryDirectory(prefix="sgb") as folder:
        told = wandb_twins.both(Path(folder))
        found = {name: wandb_twins.differences(Path(folder), told, name) for name in wandb_twins.PROGRAMS}
    n_different = sum(map(bool, found.values()))
    yield "W&B programs with equal series, config and summary", len(found) - n_different, "", None
    yield "  that record something else", n_different, "", 0.0
    yield "  tags that differ on purpose", len(wandb_twins.ON_PURPOSE), "", None
    n_compared = list(_compared())
    yield "situations of files with equal numbers", len(n_compared) - n_compared.count(0), "", None
    yield "  with other numbers", n_compared.count(0), "", 0.0
    yield "  numbers compared", sum(n_compared), "", None


def _compared() -> Iterator[int]:
    """Yield how many numbers are equal in each situation; 0 where one is not."""
    with tempfile.TemporaryDirectory(prefix="sgb") as folder:
        for library, one in catalogue.LIBRARIES.items():
            made = Path(folder, library)
            made.mkdir()
            one.write(made / "run")
            for i, (_, situation) in enumerate(case for case in catalogue.CASES if case[0] == library):
                copy = shutil.copytree(made, Path(folder, f"{library}-{i}"))
                yield _tried(catalogue.check, copy, library, situation)
        for i, program in enumerate(catalogue.PROGRAMS):
            yield _tried(catalogue.check_program, Path(folder, f"program-{i}"), program)


def _tried(check: Callable[..., int], *arguments: object) -> int:
    try:
        return check(*arguments)
    except AssertionError:
        return 0
