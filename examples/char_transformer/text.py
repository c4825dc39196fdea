"""A text that comes with Python: its help on topics, half a million characters."""

from __future__ import annotations

from pydoc_data.topics import topics

import numpy as np

TEXT = "\n\n".join(topics[name] for name in sorted(topics))
CHARACTERS = sorted(set(TEXT))

_number = {character: i for i, character in enumerate(CHARACTERS)}


def encode(text):
    """Return the numbers of a text's characters, shape (n,)."""
    return np.array([_number[character] for character in text], np.int32)


def decode(numbers):
    return "".join(CHARACTERS[i] for i in numbers)


def split(validation=0.1):
    """Return the numbers of the text to learn from, and of the text to validate on, which is its end."""
    numbers = encode(TEXT)
    n = int(len(numbers) * (1 - validation))
    return numbers[:n], numbers[n:]


def draw(numbers, rng, batch, length):
    """Draw passages: characters, and the ones that follow each of them; both of shape (batch, length)."""
    starts = rng.integers(len(numbers) - length, size=(batch, 1))
    passages = numbers[starts + np.arange(length + 1)]
    return passages[:, :-1], passages[:, 1:]
