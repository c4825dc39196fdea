"""The targets: what reads bytes and text that others made.

A target takes the bytes of an input. It ends normally whether the input is read or refused as documented; any other
error, a hang or a lack of memory is a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sightglass.storage.format.png import picture as read_picture

from .client import client
from .foreign import event, events, foreign, picture
from .query import query, slice_text
from .recording import recording
from .records import blocks, index, runfile, segment
from .service import service
from .wire import page, value, wire

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
CRASHES = HERE / "crashes"


@dataclass(frozen=True, slots=True)
class Target:
    """What is fuzzed.

    Attributes:
        run: Takes an input.
        max_len: How many bytes an input has at most: enough for every kind of content, and quick to read.
        words: The words of the language, in `query.dict`, or of the binary inputs.
    """

    run: Callable[[bytes], None]
    max_len: int
    words: str = "binary.dict"


TARGETS: Mapping[str, Target] = {
    "wire": Target(wire, 8192),
    "service": Target(service, 2048, "query.dict"),
    "client": Target(client, 2048),
    "codec": Target(value, 8192),
    "segment": Target(segment, 8192),
    "blocks": Target(blocks, 8192),
    "index": Target(index, 4096),
    "recording": Target(recording, 6144),
    "foreign": Target(foreign, 4096),
    "events": Target(events, 8192),
    "event": Target(event, 4096),
    "picture": Target(picture, 512),
    "runfile": Target(runfile, 2048),
    "query": Target(query, 512, "query.dict"),
    "slice": Target(slice_text, 128),
    "page": Target(page, 1024, "query.dict"),
}


def planted(data: bytes) -> None:
    """Fail on some pictures, as a reader with a bug does: a campaign begins by finding this one, from nothing."""
    found = read_picture(data)
    if found is not None and found.n_channels == 4 and found.width > 255:
        raise ZeroDivisionError("planted")


PLANTED = {"planted": Target(planted, 64)}


def stored(name: str) -> list[Path]:
    """Return the inputs of a target that the repository keeps: its corpus, and what it failed on once."""
    return sorted(path for root in (CORPUS, CRASHES) for path in (root / name).glob("*"))
