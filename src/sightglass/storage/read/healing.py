"""Damage that goes away: in a network, the pages of a file that another machine writes can arrive in any order.

Until they do, a reader finds zeros between whole frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sightglass.storage.format import framing
from sightglass.storage.format.block_entries import Heads
from sightglass.storage.format.frame_scan import LOST
from sightglass.storage.format.framing import FOOTER_BYTES, HEADER_BYTES, Damage, Frame, RandomAccessFile

LOST_HEAD: Final = "the head of a block is damaged"
MAX_LOOKS: Final = 8  # the latest damage: pages arrive within seconds
MAX_BYTES: Final = 2**20  # of a frame that is read for it whenever the file is


def healed(file: RandomAccessFile, damages: Sequence[Damage]) -> bool:
    """Return whether a frame that was damaged is right now.

    Raises:
        OSError: The file cannot be read.
    """
    return any(_is_right(file, damage) for damage in damages[-MAX_LOOKS:])


def _is_right(file: RandomAccessFile, damage: Damage) -> bool:
    if damage.what not in (LOST, LOST_HEAD):
        return False
    length = framing.header(file.read(damage.offset, HEADER_BYTES))
    if length is None or length > min(MAX_BYTES, damage.length - HEADER_BYTES - FOOTER_BYTES):
        return False
    frame = Frame(damage.offset, length)
    body = bytes(file.read(frame.payload, length))
    is_block = Heads().read(body, [0], [length], [frame.offset])[0][0] >= 0
    return framing.intact(file, frame) and (is_block or damage.what == LOST)
