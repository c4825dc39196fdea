"""A canvas of characters for drawing lines in dots: two by four per cell in braille, one by two in ASCII.

Every cell has one colour; where lines cross, the last one drawn wins. Text on the canvas covers dots.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.text import Text

# The bit of each dot in a braille character (U+2800 …): rows from the top, left and right.
BRAILLE = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])
ASCII_DOTS = " '.:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The capabilities of a terminal.

    Attributes:
        unicode: Whether its encoding has braille, blocks and lines.
        color: Whether it shows colours.
    """

    unicode: bool = True
    color: bool = True

    def pick(self, unicode: str, ascii: str) -> str:
        """Return the text that the terminal's encoding can represent."""
        return unicode if self.unicode else ascii

    def plain(self, text: str) -> str:
        """Return a text with question marks for characters that the terminal's encoding cannot represent."""
        return text if self.unicode else text.encode("ascii", "replace").decode()


def styled(cells: Iterable[tuple[str, str]]) -> Text:
    """Join styled characters; equal neighbours share an escape sequence, which saves most of the output."""
    text = Text(no_wrap=True, end="")
    for style, run in groupby(cells, key=lambda cell: cell[1]):
        text.append("".join(char for char, _ in run), style)
    return text


class Canvas:
    """A drawing surface.

    Attributes:
        width: The width in cells.
        height: The height in cells.
        n_x: The width in dots.
        n_y: The height in dots.
    """

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.n_x, self.n_y = 2 * width, 4 * height
        self._dots = np.zeros((self.n_y, self.n_x), bool)
        self._styles: list[str] = [""]
        self._colors = np.zeros((height, width), np.int64)
        self._texts: dict[tuple[int, int], tuple[str, str]] = {}
        self._backgrounds: dict[tuple[int, int], tuple[str, str]] = {}

    def path(self, x: npt.ArrayLike, y: npt.ArrayLike, style: str) -> None:
        """Draw a line through points given in dots, x from the left and y from the bottom; NaN is a gap.

        A point between two gaps is drawn as four dots, because a single dot is hard to see.
        """
        px, py = np.asarray(x, np.float64), np.asarray(y, np.float64)
        solid = np.isfinite(px) & np.isfinite(py)
        joined = solid[:-1] & solid[1:]
        alone = solid.copy()
        alone[:-1] &= ~joined
        alone[1:] &= ~joined
        self.dots(px[alone], py[alone], style)
        start = np.flatnonzero(joined)
        x0, y0 = np.rint(px[start]), np.rint(py[start])
        dx, dy = np.rint(px[start + 1]) - x0, np.rint(py[start + 1]) - y0
        n_dots = np.maximum(np.maximum(abs(dx), abs(dy)), 1).astype(np.int64)
        of = np.repeat(np.arange(len(start)), n_dots + 1)
        at = np.arange(len(of)) - np.repeat(np.cumsum(n_dots + 1) - (n_dots + 1), n_dots + 1)
        share = at / n_dots[of]
        self._set(x0[of] + dx[of] * share, y0[of] + dy[of] * share, style)

    def dots(self, x: npt.ArrayLike, y: npt.ArrayLike, style: str) -> None:
        """Draw each point separately, large enough to be visible."""
        px, py = np.asarray(x, np.float64), np.asarray(y, np.float64)
        solid = np.isfinite(px) & np.isfinite(py)
        for right, up in ((0, 0), (1, 0), (0, 1), (1, 1)):
            self._set(px[solid] + right, py[solid] + up, style)

    def put(self, column: int, row: int, text: str, style: str) -> None:
        """Write text starting at a cell, with rows counted from the top; text that does not fit is cut off."""
        for i, char in enumerate(text):
            if 0 <= row < self.height and 0 <= column + i < self.width:
                self._texts[row, column + i] = (char, style)

    def under(self, column: int, row: int, char: str, style: str) -> None:
        """Put a character in the background."""
        self._backgrounds[row, column] = (char, style)

    def is_free(self, column: int, row: int, length: int) -> bool:
        """Return whether text of a length fits at a cell without covering anything."""
        if not 0 <= row < self.height or column < 0 or column + length > self.width:
            return False
        inked = self._colors[row, column : column + length].any()
        return not inked and not any((row, column + i) in self._texts for i in range(length))

    def lines(self, caps: Capabilities) -> list[Text]:
        """Return the rows from top to bottom, each as wide as the canvas."""
        cells: npt.NDArray[Any] = self._dots.reshape(self.height, 4, self.width, 2)
        if caps.unicode:
            codes = (cells * BRAILLE[None, :, None, :]).sum(axis=(1, 3)) + 0x2800
            chars = ["".join(map(chr, row)) for row in np.asarray(codes)]
        else:
            codes = cells[:, :2].any(axis=(1, 3)) + 2 * cells[:, 2:].any(axis=(1, 3))
            chars = ["".join(ASCII_DOTS[code] for code in row) for row in np.asarray(codes)]
        rows = []
        for r, row in enumerate(chars):
            cells_of_row = []
            for c, char in enumerate(row):
                color = self._styles[self._colors[r, c]]
                drawn = (char, color) if color else self._backgrounds.get((r, c), (" ", ""))
                cells_of_row.append(self._texts.get((r, c), drawn))
            rows.append(styled(cells_of_row))
        return rows

    def _set(self, x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], style: str) -> None:
        if not len(x):
            return
        if style not in self._styles:
            self._styles.append(style)
        column = np.clip(np.rint(x), 0, self.n_x - 1).astype(np.int64)
        row = self.n_y - 1 - np.clip(np.rint(y), 0, self.n_y - 1).astype(np.int64)
        self._dots[row, column] = True
        self._colors[row // 4, column // 2] = self._styles.index(style)
