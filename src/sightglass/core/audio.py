"""Sound, as a value."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, Final

from .guarded import Holder, LostValue
from .values import PendingCopy, Value, array_kind, type_name

INTEGERS: Final = ("uint8", "int16", "int32")
MAX_CHANNELS: Final = 64  # more than a room of loudspeakers; (2, 44100) is two channels the wrong way round
MAX_RATE: Final = 2**24  # a WAV file has 32 bits for the bytes of a second


@dataclass(frozen=True, slots=True)
class Audio(Holder):
    """A sound.

    Attributes:
        value: Its samples, shape (n,) or (n, channels): floats from -1 to 1, or int16. Sounds read from files may be
            int32, or uint8, whose silence is 128.
        rate: The number of samples in a second of each channel.

    Raises:
        TypeError: The rate is not an integer, or the samples have another dtype.
        ValueError: The rate or the shape is not that of a sound.
    """

    value: Any
    rate: int

    def __post_init__(self) -> None:
        rate = operator.index(self.rate)
        if not 1 <= rate <= MAX_RATE:
            raise ValueError(f"Expected a rate from 1 to {MAX_RATE:,} samples in a second, got {rate:,}")
        object.__setattr__(self, "rate", rate)
        if array_kind(self.value) is not None:
            _check(self.value)
        elif not isinstance(self.value, LostValue | PendingCopy):
            raise TypeError(f"Expected the samples of a sound as an array, got {type_name(self.value)}")


def _check(samples: Value) -> None:
    dtype = str(samples.dtype).removeprefix("torch.")
    if not (dtype.startswith(("float", "bfloat")) or dtype in INTEGERS):
        raise TypeError(f"Expected the samples of a sound as floats from -1 to 1 or int16, got {type_name(samples)}")
    shape = tuple(samples.shape)
    if len(shape) not in (1, 2) or not 1 <= (*shape, 1)[1] <= MAX_CHANNELS:
        raise ValueError(
            f"Expected the samples of a sound in shape (n,) or (n, channels), at most {MAX_CHANNELS} channels, "
            f"got {type_name(samples)}"
        )
