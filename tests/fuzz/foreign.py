"""Other programs' files: MindSpore's, TensorBoard's, and pictures."""

from __future__ import annotations

import contextlib

from sightglass.core.errors import DamagedError
from sightglass.storage.foreign import mindspore, tensorboard
from sightglass.storage.foreign.event_file import EventFile
from sightglass.storage.format import summary
from sightglass.storage.format.png import picture as read_picture

from .inputs import placed, split
from .records import EXPECTED, framed, read_all, version

NAME = "events.out.tfevents.1700000000.host.1.0"


def foreign(data: bytes) -> None:
    """Read a file as MindSpore's or TensorBoard's."""
    with placed(NAME, data) as path:
        try:
            part = EventFile(path)
        except DamagedError:
            return
        try:
            read_all(part)
        finally:
            part.close()


def events(data: bytes) -> None:
    """Read payloads as the frames of another program's file, which the first byte names, with right checksums."""
    program = "MindSpore.Event:1" if data[:1] < b"\x80" else "brain.Event:2"
    foreign(version(program) + b"".join(framed(part) for part in split(data[1:])))


def event(data: bytes) -> None:
    """Read one payload in each dialect, and the values that it has."""
    for decode in (mindspore.decode_event, tensorboard.decode_event):
        with contextlib.suppress(*EXPECTED):
            for logged in decode(memoryview(data), {}):
                with contextlib.suppress(*EXPECTED):
                    _ = logged.value
    with contextlib.suppress(*EXPECTED):
        summary.read_event(memoryview(data))


def picture(data: bytes) -> None:
    """Read the header of a picture file."""
    found = read_picture(data)
    assert found is None or (found.height >= 0 and found.width >= 0 and found.n_channels >= 0)
