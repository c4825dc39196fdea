"""Sounds: logged, read back, drawn in words, exported, and read by others."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import sightglass as sg
from sightglass.storage.format.wav import decode_wav
from sightglass.views.summaries import N_PEAKS, wave_of

RATE = 8_000
TONE = (np.sin(2 * np.pi * 440 * np.arange(2 * RATE) / RATE) * 2**14).astype(np.int16)
STEREO = np.stack([TONE, -TONE], axis=1).astype(np.float32) / 2**15


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with sg.init("sounds", dir=tmp_path) as run:
        for step in range(3):
            run.log({"tone": sg.Audio(TONE + step, RATE), "stereo": sg.Audio(STEREO * step / 2, RATE)}, step=step)
        run.log({"both": (sg.Audio(TONE, RATE), sg.Audio(STEREO, 2 * RATE))}, step=9)
        assert run.directory is not None
        return run.directory


def test_a_sound_comes_back_bit_for_bit(folder: Path) -> None:
    with sg.open(folder) as run:
        tone, stereo = run.series("tone"), run.series("stereo")
        assert (tone.type, len(tone), tone.at(2).rate) == ("Audio", 3, RATE)
        for step in range(3):
            assert tone.at(step).value.tobytes() == (TONE + step).astype(np.int16).tobytes()
            np.testing.assert_array_equal(stereo.at(step).value, STEREO * step / 2)
        assert [one.rate for one in run.series("both").at(9)] == [RATE, 2 * RATE]


def test_what_the_training_overwrites_is_kept_as_it_was(tmp_path: Path) -> None:
    samples = np.ones(100_000, np.float32)
    with sg.init("reused", dir=tmp_path) as run:
        run.log({"a": sg.Audio(samples, RATE)}, step=0)
        samples[:] = 0
        directory = run.directory
    assert directory is not None
    with sg.open(directory) as old:
        assert (old.series("a").at(0).value == 1).all()


def test_a_tensor_of_torch_is_a_sound(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with sg.init("torch", dir=tmp_path) as run:
        run.log({"a": sg.Audio(torch.tensor([0.5, -0.5], dtype=torch.bfloat16), RATE)}, step=0)
        directory = run.directory
    assert directory is not None
    with sg.open(directory) as old:
        assert old.series("a").at(0).value.tolist() == [0.5, -0.5]


@pytest.mark.parametrize(
    ("samples", "rate", "error", "message"),
    [
        (np.zeros(4, np.int64), RATE, TypeError, r"floats from -1 to 1 or int16, got int64\[4\]"),
        (np.zeros(4, np.bool_), RATE, TypeError, r"got bool\[4\]"),
        (np.zeros((2, 500)), RATE, ValueError, r"\(n,\) or \(n, channels\), .*64 channels, got float64"),
        (np.zeros((2, 2, 2)), RATE, ValueError, r"in shape \(n,\)"),
        ([0.5, 0.5], RATE, TypeError, "array, got list of 2"),
        (np.zeros(4), 44.1, TypeError, "'float'"),
        (np.zeros(4), 0, ValueError, "rate from 1 to 16,777,216 .*got 0"),
    ],
)
def test_misuse_raises_at_the_call(samples: object, rate: int, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        sg.Audio(samples, rate)


def test_a_sound_in_words_and_as_an_outline() -> None:
    wave = wave_of(sg.Audio(TONE, RATE))
    assert str(wave) == "2 s, 8,000 Hz, mono, int16, peak 0.5"
    assert wave.peaks.shape == (1, N_PEAKS, 2)
    assert (wave.peaks[..., 0].min(), wave.peaks[..., 1].max()) == (-0.5, 0.5)
    assert str(wave_of(sg.Audio(STEREO, RATE))) == "2 s, 8,000 Hz, stereo, float32, peak 0.5"
    assert str(wave_of(sg.Audio(np.zeros((0, 3)), 10))) == "0 s, 10 Hz, 3 channels, float64, peak 0"
    assert wave_of(sg.Audio(np.array([0, 128, 255], np.uint8), 10)).peaks[0, :, 0].tolist() == [-1, 0, 127 / 128]
    odd = wave_of(sg.Audio(np.array([np.nan, 0.25, np.inf]), 10))
    assert (odd.peak, np.isnan(odd.peaks[0, 0]).all()) == (0.25, True)


def test_every_outline_holds_all_samples() -> None:
    for n in (1, N_PEAKS - 1, N_PEAKS, N_PEAKS + 1, 3 * N_PEAKS + 7):
        samples = np.random.default_rng(n).normal(size=n)
        peaks = wave_of(sg.Audio(samples, RATE)).peaks
        assert (peaks.min(), peaks.max()) == (np.float32(samples.min()), np.float32(samples.max()))


def test_a_terminal_shows_a_line_of_facts(folder: Path) -> None:
    with sg.open(folder) as run:
        view = sg.plot(run.stream('log["tone"]'), surface="terminal")
        out = io.StringIO()
        Console(file=out, width=90).print(view)
    assert "2  2 s, 8,000 Hz, mono, int16, peak 0.5" in out.getvalue()


def test_sounds_are_files_for_others(folder: Path, tmp_path: Path) -> None:
    with sg.open(folder) as run:
        exported = run.export("files", out=tmp_path / "out")
    assert exported.losses == []
    assert sorted(path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.wav")) == [
        "both/9-0.wav", "both/9-1.wav", *(f"{tag}/{step}.wav" for tag in ("stereo", "tone") for step in range(3)),
    ]  # fmt: skip
    assert decode_wav((tmp_path / "out/tone/1.wav").read_bytes()).value.tobytes() == (TONE + 1).tobytes()


def test_tensorboard_has_the_sounds(folder: Path, tmp_path: Path) -> None:
    event_file_loader = pytest.importorskip("tensorboard.backend.event_processing.event_file_loader")
    with sg.open(folder) as run:
        run.export("tensorboard", out=tmp_path / "logs", tags=["tone"])
    (path,) = (tmp_path / "logs").rglob("*tfevents*")
    values = [
        value for event in event_file_loader.LegacyEventFileLoader(str(path)).Load() for value in event.summary.value
    ]
    assert [value.audio.sample_rate for value in values] == [RATE] * 3
    with sg.open(tmp_path / "logs") as again:
        assert again.series("tone").at(2).value.tobytes() == (TONE + 2).tobytes()


def test_mindspore_s_files_have_no_sounds_and_it_is_told(folder: Path, tmp_path: Path) -> None:
    with sg.open(folder) as run:
        exported = run.export("mindspore", out=tmp_path / "out", tags=["tone"])
    assert [(loss.tag, loss.n, loss.why) for loss in exported.losses] == [
        ("tone", 3, "MindSpore summary files do not support Audio")
    ]
