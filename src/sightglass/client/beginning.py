"""Where a stream begins, as its remark says it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .record_buffer import RecordBuffer

UNRECORDED: Final = "; earlier events were not recorded"


def with_beginning(
    note: Callable[[], str], why: str, buffer: RecordBuffer, *, at_once: bool = False
) -> Callable[[], str]:
    """Return a function that returns a remark, or else where the stream begins.

    Args:
        note: Returns another remark, which comes first.
        why: Why it does not begin with the run, as it follows the place; empty if it does.
        buffer: The records.
        at_once: Say it before the first record, too.
    """

    def text() -> str:
        where = "the next event" if buffer.first_step is None else f"step {buffer.first_step:,.12g}"
        known = why and (at_once or buffer.first_step is not None)
        return note() or (f"from {where}{why}" if known else "")

    return text
