"""Sounds as WAV files."""

from __future__ import annotations

import io
import wave

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sightglass.core.errors import WireError
from sightglass.core.values import Audio
from sightglass.storage.format.wav import decode_wav, encode_wav

SHAPES = st.one_of(st.tuples(st.integers(0, 9)), st.tuples(st.integers(0, 9), st.integers(2, 3)))
SAMPLES = st.sampled_from(["u1", "<i2", "<i4", "<f4", "<f8"]).flatmap(lambda dtype: hnp.arrays(dtype, SHAPES))


@given(SAMPLES, st.integers(1, 400_000))
def test_samples_come_back_bit_for_bit(samples, rate):
    read = decode_wav(encode_wav(Audio(samples, rate)))

    assert (read.rate, read.value.dtype, read.value.shape) == (rate, samples.dtype, samples.shape)
    assert read.value.tobytes() == samples.tobytes()


@given(hnp.arrays("<i2", st.tuples(st.integers(1, 9), st.integers(1, 3))), st.integers(1, 96_000))
def test_python_reads_what_is_written(samples, rate):
    with wave.open(io.BytesIO(encode_wav(Audio(samples, rate)))) as file:
        assert (file.getnchannels(), file.getframerate(), file.getsampwidth()) == (samples.shape[1], rate, 2)
        assert file.readframes(file.getnframes()) == samples.tobytes()


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "float32", "float64"])
def test_scipy_reads_what_is_written(dtype):
    wavfile = pytest.importorskip("scipy.io.wavfile")
    samples = (np.random.default_rng(0).random((50, 2)) * 100).astype(dtype)

    rate, read = wavfile.read(io.BytesIO(encode_wav(Audio(samples, 8_000))))

    assert (rate, read.dtype) == (8_000, samples.dtype)
    np.testing.assert_array_equal(read, samples)


def test_what_browsers_refuse_is_narrowed_to_be_played():
    sound = Audio(np.array([0.5, 0.1]), 10)

    assert decode_wav(encode_wav(sound, to_play=True)).value.tolist() == [0.5, np.float32(0.1)]
    assert decode_wav(encode_wav(sound)).value.tolist() == [0.5, 0.1]


def test_samples_of_24_bits_are_widened():
    data = io.BytesIO()
    with wave.open(data, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(3)
        file.setframerate(44_100)
        file.writeframes(b"".join(n.to_bytes(3, "little", signed=True) for n in (0, 1, -1, 2**23 - 1, -(2**23))))

    read = decode_wav(data.getvalue())

    assert read.value.dtype == np.int32
    assert (read.value >> 8).tolist() == [0, 1, -1, 2**23 - 1, -(2**23)]


def test_short_floats_become_float32():
    samples = np.array([0.5, -0.25], np.float16)

    assert decode_wav(encode_wav(Audio(samples, 10))).value.tolist() == [0.5, -0.25]


def test_a_length_that_the_writer_did_not_know_ends_at_the_end():
    data = bytearray(encode_wav(Audio(np.array([1, 2, 3], np.int16), 10)))
    data[40:44] = b"\xff" * 4

    assert decode_wav(data).value.tolist() == [1, 2, 3]


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), min_size=1, max_size=4), st.integers(0, 200))
def test_damaged_files_raise_or_are_sounds(changes, length):
    damaged = bytearray(encode_wav(Audio(np.arange(-20, 20, dtype=np.int16).reshape(-1, 2), 8_000)))
    for place, byte in changes:
        damaged[place] = byte
    try:
        samples = decode_wav(damaged[:length]).value
    except WireError:
        return
    assert samples.nbytes <= 2 * length


@pytest.mark.parametrize("data", [b"", b"RIFF", b"RIFF\0\0\0\0WAVE", b"ID3" + b"\0" * 100])
def test_other_files_are_refused(data):
    with pytest.raises(WireError, match="WAV file"):
        decode_wav(data)
