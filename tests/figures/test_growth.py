"""What drawing leaves behind in a renderer that lives as long as the training: nothing that grows."""

from __future__ import annotations

import gc
from collections import Counter

import numpy as np

from sightglass.figures.drawing import FONTS_EVERY, Drawer
from sightglass.figures.messages import DrawFigure, Output

OWNED = ("matplotlib", "sightglass", "numpy", "PIL", "builtins.frame", "builtins.traceback", "builtins.function")


def powers(step):
    """Draw a figure whose ticks are formulas, each of them another one."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2, 1))
    axes = figure.subplots()
    axes.plot(np.arange(16) + 10_000 * step)
    axes.set_title(f"$10^{{{step}}}$")
    return figure


def fails(step):
    raise ValueError(f"no figure of {step}")


def draw(drawer, steps, function=powers):
    for step in steps:
        message = DrawFigure(id=step, name="powers", step=step, function="powers", blob=b"", spans=[], output=Output())
        drawing = drawer.draw(message, lambda: function, lambda step=step: (step,))
        assert list(drawing.pictures) == ["powers"]
        assert bool(drawing.failures) == (function is fails)


def n_glyphs():
    """Count the glyphs that Matplotlib's own fonts hold; none if they are not open."""
    from matplotlib.font_manager import fontManager, get_font

    paths = {font.fname for font in fontManager.ttflist if font.name.startswith("DejaVu")}
    return sum(get_font(path).get_num_glyphs() for path in paths)


def test_figures_leave_no_glyphs_behind():
    drawer = Drawer()
    draw(drawer, range(FONTS_EVERY - 1))
    assert n_glyphs() > FONTS_EVERY  # so that there is something to leave
    draw(drawer, [FONTS_EVERY])
    assert n_glyphs() == 0


def test_figures_leave_no_objects_behind():
    def counted():
        gc.collect()
        return Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.get_objects())

    drawer = Drawer()
    draw(drawer, range(64))  # caches of Matplotlib's own fill up, such as 50 formulas
    draw(drawer, range(4), fails)
    grown = []
    for first in (64, 72):  # what others do in this process, such as a late import, happens once; a leak each time
        before = counted()
        draw(drawer, range(first, first + 8))
        draw(drawer, range(4, 8), fails)
        grown.append(counted() - before)
    assert not [kind for kind in grown[0] & grown[1] if kind.startswith(OWNED)]
