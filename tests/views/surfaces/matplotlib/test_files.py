"""Files that are kept fresh."""

from __future__ import annotations

import os

import numpy as np
import pytest
from matplotlib import pyplot as plt

from sightglass.core.errors import ViewError
from sightglass.views import plot
from sightglass.views.surfaces.matplotlib import MatplotlibView, display

BLUE = np.array([0x3F, 0x8F, 0xC4]) / 255


def blue(path):
    return (abs(plt.imread(path)[..., :3] - BLUE).max(axis=-1) < 0.05).sum()


@pytest.mark.parametrize(("suffix", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_the_suffix_selects_the_format(stub, tmp_path, suffix, start):
    path = tmp_path / f"loss.{suffix}"
    plot(stub(1.0, 2.0), surface="matplotlib", path=path).close()
    assert path.read_bytes().startswith(start)
    assert os.listdir(tmp_path) == [path.name]


def test_a_file_shows_new_records(stub, tmp_path):
    path, source = tmp_path / "loss.png", stub(ended=False)
    view = MatplotlibView(source, path=path).start()
    assert blue(path) == 0
    source.put(*[1.0, 2.0] * 20)
    view.close()
    assert blue(path) > 1000
    view.close()


def test_it_is_written_at_most_twice_a_second_while_waiting(stub, tmp_path, monkeypatch):
    now, writes, source = [0.0], [], stub(1.0, ended=False)
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(display.time, "sleep", lambda seconds: (source.put(1.0), now.__setitem__(0, now[0] + seconds)))
    write = display.FigureFile.write
    monkeypatch.setattr(display.FigureFile, "write", lambda self, figure: (writes.append(now[0]), write(self, figure)))
    view = MatplotlibView(source, path=tmp_path / "a.png", size=(1, 1)).start()
    assert view.wait(2.0) is False
    assert len(writes) in (4, 5)
    assert min(np.diff(writes)) >= 0.5
    source.ended = True
    assert view.wait() is True


def test_nothing_new_writes_nothing(stub, tmp_path):
    path, source = tmp_path / "a.png", stub(1.0, ended=False)
    view = MatplotlibView(source, path=path).start()
    before = path.stat().st_ino
    view.wait(0.0)
    view.close()
    assert path.stat().st_ino == before


def test_a_reader_never_sees_half_a_picture(stub, tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    view = MatplotlibView(stub(1.0), path=path).start()
    whole = path.read_bytes()

    def fails(self, *args, **kwargs):
        args[0].write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(view.figure), "savefig", fails)
    with pytest.raises(ViewError, match="No space left"):
        view.save(path)
    assert path.read_bytes() == whole
    assert os.listdir(tmp_path) == ["a.png"]


def test_save_writes_the_current_state(stub, tmp_path):
    view = MatplotlibView(stub(*[1.0, 2.0] * 20), window=False)
    view.save(tmp_path / "a.png")
    assert blue(tmp_path / "a.png") > 1000


def test_misuse_raises_at_the_call(stub, tmp_path):
    with pytest.raises(ViewError, match="'pgn'"):
        MatplotlibView(stub(1.0), path="a.pgn")
    with pytest.raises(ViewError, match="'nowhere'"):
        MatplotlibView(stub(1.0), path="nowhere/a.png")
