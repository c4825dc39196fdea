"""Files that only this user can read, for secrets."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only this user can read, in place of what has its name.

    The content goes into a new file, which then takes the name. So nothing is written through a link, nor into a file
    with wider permissions, that somebody else has placed there.

    Raises:
        OSError: The file cannot be written. What had its name stays.
    """
    fresh = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        fresh.replace(path)
    except BaseException:  # an interrupt, too, leaves no secret behind
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise
