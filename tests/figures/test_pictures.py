"""What functions return besides Matplotlib's figures: Pillow's images, pixels, frames, animations, lists of figures."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

import sightglass as sg
from sightglass.core.values import Figure, Image
from sightglass.figures import Plotter

GRADIENT = np.arange(96, dtype=np.uint8).reshape(8, 12)


def opened(data: bytes) -> Any:
    return Pillow.open(io.BytesIO(data))


def frames_of(data: bytes) -> list[np.ndarray]:
    image = opened(data)
    found = []
    for i in range(getattr(image, "n_frames", 1)):
        image.seek(i)
        found.append(np.asarray(image.convert("RGB")))
    return found


@pytest.fixture
def drawn(tmp_path: Path):
    """Return a function that draws with a run, and returns the pictures by their names."""

    def draw(fn: Any, *arrays: Any) -> dict[str, bytes]:
        with sg.init("r", dir=tmp_path) as run:
            run.figure("it", fn, *arrays, step=1)
        assert run.directory is not None
        recorded = sg.open(run.directory)
        return {tag: recorded.series(tag).at(1).data for tag in recorded.tags() if tag.startswith("it")}

    return draw


def test_an_image_of_pillow(drawn) -> None:
    (png,) = drawn(Pillow.fromarray, GRADIENT).values()
    assert np.array_equal(np.asarray(opened(png)), GRADIENT)


@pytest.mark.parametrize("shape", [(8, 12), (8, 12, 3), (8, 12, 4), (8, 12, 1)])
def test_pixels(drawn, shape) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    (png,) = drawn(lambda x: x, pixels).values()
    assert np.array_equal(np.asarray(opened(png)), pixels[:, :, 0] if shape[-1] == 1 else pixels)


@pytest.mark.parametrize("as_list", [False, True])
def test_frames_become_an_animation(drawn, as_list) -> None:
    stack = np.random.default_rng(0).integers(0, 256, (5, 8, 12, 3)).astype(np.uint8)
    (png,) = drawn(lambda x: [Pillow.fromarray(one) for one in x] if as_list else x, stack).values()
    assert png.startswith(b"\x89PNG")
    assert np.array_equal(frames_of(png), stack)
    assert opened(png).info["duration"] == 100


def test_an_animation_of_matplotlib(drawn) -> None:
    def animate(ys):
        from matplotlib.animation import FuncAnimation
        from matplotlib.figure import Figure

        figure = Figure(figsize=(2, 1))
        (line,) = figure.subplots().plot(ys[0])
        return FuncAnimation(figure, lambda i: line.set_ydata(ys[i]), frames=len(ys), interval=250)

    (png,) = drawn(animate, np.random.default_rng(0).normal(size=(3, 10))).values()
    frames = frames_of(png)
    assert len(frames) == 3
    assert not np.array_equal(frames[0], frames[1])
    assert opened(png).info["duration"] == 250


def test_several_figures_in_a_list_and_one_left_in_pyplot(drawn) -> None:
    def several():
        from matplotlib.figure import Figure

        return [Figure(figsize=(i, 1)) for i in (1, 2)]

    def left():
        from matplotlib import pyplot

        pyplot.plot([1, 2])

    assert sorted(drawn(several)) == ["it/0", "it/1"]
    assert list(drawn(left)) == ["it"]


def test_files_of_a_picture_in_each_format(tmp_path: Path) -> None:
    stack = np.random.default_rng(0).integers(0, 256, (3, 8, 12, 3)).astype(np.uint8)
    with Plotter(save=("png", "pdf", "svg"), save_dir=tmp_path, sinks=[]) as plotter:
        plotter.plot(lambda x: {"a": x, "still": x[0]}, stack, step=2)
    files = {path.name.split(".", 1)[0][:1] + path.suffix: path.read_bytes() for path in tmp_path.rglob("*.*")}
    assert len(frames_of(files["a.png"])) == 3
    assert files["a.pdf"].startswith(b"%PDF")
    assert b"data:image/png;base64," in files["s.svg"]
    assert np.array_equal(frames_of(files["s.png"]), stack[:1])


def test_frames_of_several_sizes_are_a_failure_of_this_figure(tmp_path: Path) -> None:
    plotter = Plotter(sinks=[], on_error="raise")
    plotter.plot(lambda: [np.zeros((2, 2)), np.zeros((3, 3))], step=0)
    with pytest.raises(sg.FigureErrors) as caught:
        plotter.close()
    assert "one size" in str(caught.value.exceptions[0])


def test_run_log_takes_images_of_pillow(tmp_path: Path) -> None:
    animated = io.BytesIO()
    first, second = (Pillow.fromarray(np.full((4, 4), value, np.uint8)) for value in (0, 200))
    first.save(animated, "gif", save_all=True, append_images=[second], duration=40)
    with sg.init("r", dir=tmp_path) as run:
        run.log(
            {
                "a": Pillow.fromarray(GRADIENT),
                "b": {"c": Pillow.fromarray(GRADIENT > 50), "d": opened(animated.getvalue())},
            }
        )
    assert run.directory is not None
    recorded = sg.open(run.directory)
    a, c, d = (recorded.series(tag)[0].value for tag in ("a", "b/c", "b/d"))
    assert isinstance(a, Image)
    assert np.array_equal(a.value, GRADIENT)
    assert np.array_equal(c.value, (GRADIENT > 50) * np.uint8(255))
    assert isinstance(d, Figure)
    assert [frame[0, 0, 0] for frame in frames_of(d.data)] == [0, 200]
