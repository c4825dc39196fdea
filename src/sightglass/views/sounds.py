"""Sounds in words, and the outline of their waves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from sightglass.core.audio import Audio
from sightglass.core.values import to_host
from sightglass.storage.format import wav

from .scales import number

N_PEAKS: Final = 400  # places along a wave: two pixels each in a column of the page


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """What a sound is, and its outline.

    Attributes:
        rate: Samples in a second of each channel.
        n_samples: How many samples each channel has.
        dtype: The dtype of the samples.
        peaks: Shape (n_channels, at most `N_PEAKS`, 2), float32: the lowest and the highest sample at each place, as
            parts of full scale; NaN where no sample is finite.
        peak: The largest magnitude of all finite samples, as a part of full scale.
    """

    rate: int
    n_samples: int
    dtype: str
    peaks: npt.NDArray[np.float32]
    peak: float

    @property
    def seconds(self) -> float:
        """How long the sound is."""
        return self.n_samples / self.rate

    def __str__(self) -> str:
        """Describe the sound in one line."""
        n_channels = len(self.peaks)
        channels = {1: "mono", 2: "stereo"}.get(n_channels, f"{n_channels} channels")
        return (
            f"{number(self.seconds)} s, {self.rate:,} Hz, {channels}, {self.dtype}, peak {number(round(self.peak, 3))}"
        )


def wave_of(audio: Audio) -> Wave:
    """Return what a sound is, and its outline.

    Raises:
        TypeError: See `Audio`.
        ValueError: See `Audio`.
    """
    samples = wav.samples_of(audio)
    n, n_channels = samples.shape
    places = np.arange(min(n, N_PEAKS)) * n // max(1, min(n, N_PEAKS))
    peaks = np.zeros((n_channels, len(places), 2), np.float32)
    if n:
        ends = [reduced.reduceat(samples, places, axis=0) for reduced in (np.fmin, np.fmax)]
        peaks = np.stack([_part(end) for end in ends], axis=-1).transpose(1, 0, 2)
    finite = peaks[np.isfinite(peaks)]
    return Wave(
        rate=audio.rate,
        n_samples=n,
        dtype=str(np.asarray(to_host(audio.value)).dtype),
        peaks=peaks,
        peak=float(abs(finite).max()) if len(finite) else 0.0,
    )


def _part(samples: npt.NDArray[np.generic]) -> npt.NDArray[np.float32]:
    """Return samples as parts of full scale; silence is 128 in uint8."""
    with np.errstate(over="ignore"):
        wide = samples.astype(np.float64)
        match samples.dtype.kind:
            case "u":
                wide = wide / 128 - 1
            case "i":
                wide = wide / 2.0 ** (8 * samples.dtype.itemsize - 1)
        return wide.astype(np.float32)
