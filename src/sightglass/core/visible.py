"""Characters that are not seen, made visible: controls, and those that change the direction of a text.

A name can hold any characters. In a terminal, controls move the cursor and change what stands there; on a page and in a
terminal alike, U+202E makes a run called "evil" read as "live".
"""

from __future__ import annotations

import re
from typing import Final

# All controls but tab and line breaks; marks, embeddings, overrides and isolates of direction.
_INVISIBLE: Final = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]|\r(?!\n)"
)


def visible(text: str) -> str:
    r"""Return a text with such characters written as Python does.

    >>> visible("\x1b[2J and \u202eevil")
    '\\x1b[2J and \\u202eevil'
    """
    return _INVISIBLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
