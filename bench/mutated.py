"""Damaged copies of other programs' files: what is read of them, against the whole file.

Each copy has a flipped bit, zeroed or inserted bytes, or lacks its end. A value is wrong if the whole file has another
one under that tag, at that step and time; what is lost is damage, and counts as nothing.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from sightglass.core.errors import DamagedError
from sightglass.storage.read.recording import Recording

FIXTURES: Final = Path(__file__).parents[1] / "tests" / "storage" / "fixtures"
NAMES: Final = {
    "tensorflow.out.events": "events.out.tfevents.1700000000.host.1.0",
    "tensorboardx.out.events": "events.out.tfevents.1700000000.host.1.0",
    "torch.out.events": "events.out.tfevents.1700000000.host.1.0",
    "mindspore.out.events": "x.out.events.summary.1700000000.host_MS",
    "mindspore_half.out.events": "x.out.events.summary.1700000000.host_MS",
    "wandb.out/run-made.wandb": "run-made.wandb",
}
MEDIA: Final = "files"  # beside a file of W&B
N_COPIES: Final = 1_000
MAX_EXTENT: Final = 64  # bytes that are zeroed or inserted

Seen = dict[tuple[str, float, float], set[str]]


def measure() -> Iterator[tuple[str, float, str, float | None]]:
    for fixture, name in NAMES.items():
        source = FIXTURES / fixture
        data, found, rng = source.read_bytes(), Counter[str](), random.Random(0)
        with tempfile.TemporaryDirectory() as name_of_folder:
            folder = Path(name_of_folder)
            whole = seen(placed(folder / "whole", name, data, source.parent / MEDIA))
            for i in range(N_COPIES):
                copy = placed(folder / str(i), name, mutated(data, rng), source.parent / MEDIA)
                found[outcome(copy, whole)] += 1
                shutil.rmtree(copy)
        yield f"{N_COPIES:,} damaged copies of {fixture}: exceptions", found["exception"], "", 0
        yield "  wrong values", found["wrong"], "", 0
        yield "  refused as a whole", found["refused"], "", None


def placed(folder: Path, name: str, data: bytes, media: Path) -> Path:
    folder.mkdir()
    (folder / name).write_bytes(data)
    if media.exists():
        (folder / MEDIA).symlink_to(media)
    return folder


def mutated(data: bytes, rng: random.Random) -> bytes:
    at, n = rng.randrange(len(data)), rng.randint(1, MAX_EXTENT)
    match rng.randrange(4):
        case 0:
            return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
        case 1:
            return data[:at] + bytes(len(data[at : at + n])) + data[at + n :]
        case 2:
            return data[:at] + rng.randbytes(n) + data[at:]
    return data[:at]


def seen(folder: Path) -> Seen:
    """Return the values under each tag, step and time, as texts."""
    found: Seen = {}
    with Recording(folder) as recording:
        for key in recording.keys():  # noqa: SIM118  not a mapping
            series = recording.series(key)
            for row in range(len(series)):
                try:
                    one = series[row]
                except DamagedError:
                    continue
                found.setdefault((key.tag, float(one.step), one.wall_time), set()).add(text(one.value))
    return found


def text(value: Any) -> str:
    """Return a value as a text that tells it from others."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {value.tobytes().hex()}"
    inner = {
        name: getattr(value, name) for name in ("value", "data", "rate", "counts", "edges") if hasattr(value, name)
    }
    if isinstance(value, dict) or inner:
        return repr({name: text(item) for name, item in (inner or value).items()})
    return repr(value)


def outcome(folder: Path, whole: Seen) -> str:
    try:
        found = seen(folder)
    except DamagedError:
        return "refused"
    except Exception as error:  # noqa: BLE001  what is counted
        print(f"{type(error).__name__}: {error}")
        return "exception"
    return "right" if all(values <= whole.get(place, set()) for place, values in found.items()) else "wrong"
