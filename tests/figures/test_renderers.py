"""One suite for every renderer: in a child process, in a thread, at once."""

from __future__ import annotations

import os
import threading

import matplotlib as mpl
import numpy as np
import pytest

from sightglass.core.errors import FigureErrors
from sightglass.figures import Plotter, no_plot

from .conftest import Caught, pixels, wait_until

KINDS = ["process", "thread", "inline"]


def line(values):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2, 1))
    figure.subplots().plot(np.asarray(values).ravel())
    return figure


def part():
    from matplotlib.figure import Figure

    return Figure(figsize=(2, 1)).subfigures(1, 2)[0].subplots()


class Model:
    @staticmethod
    def plot(intermediates):
        return {f"scores/{path}": line(keys["score"][-1]) for path, keys in intermediates["plots"].items()}


class Shows:
    """Says in its error what the function got, which is how a test sees into another process."""

    @staticmethod
    def plot(intermediates):
        raise ValueError(repr(intermediates))


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def make(kind):
    made = []

    def make(model=Model, **options):
        sink = Caught()
        plotter = Plotter(model, **{"renderer": kind, "sinks": [sink], "limit_s": 60.0, **options})
        made.append(plotter)
        return plotter, sink

    yield make
    for plotter in made:
        try:
            plotter.close()
        except FigureErrors:
            pass


def failures(plotter, *calls):
    """Return the errors of some calls; renderers that draw at once raise them within the call."""
    with pytest.raises(FigureErrors) as caught:  # noqa: PT012
        for call in calls:
            call()
        plotter.flush()
    return caught.value.exceptions


def got(plotter, value, step=0, then=lambda: None):
    """Return what a function in the renderer sees of a value."""
    (error,) = failures(plotter, lambda: (plotter.submit(value, step), then()))
    assert error.kind == "ValueError"
    return str(error.args[0]).partition("ValueError: ")[2]


def test_figures_come_by_their_names_at_their_steps(make):
    plotter, sink = make()
    for step in (3, np.int64(1), 2.5):
        plotter.submit({"plots": {"A": {"score": (np.ones(3), np.zeros(2))}, "B/C": {"score": [[1.0, 2.0]]}}}, step)
    plotter.close()
    assert sink.names == [(f"scores/{name}", step) for step in (3, 1, 2.5) for name in ("A", "B/C")]
    assert all(pixels(r.value.data).shape[2] == 4 and r.value.media_type == "image/png" for r in sink.records)
    assert sink.n_flushed == 1
    counts = plotter.statistics()
    assert (counts.n_events, counts.n_records, counts.n_errors, counts.n_waiting) == (3, 6, 0, 0)


def test_any_function_draws_and_a_single_figure_has_its_name(make):
    plotter, sink = make()
    scale = 2.0
    plotter.plot(lambda x: line(x * scale), np.ones(3), step=1)
    plotter.plot(line, [1, 2], step=2)
    plotter.plot(lambda: {"a": line([1]), "b": line([2])}, step=3)
    plotter.plot(lambda x: line(x).axes[0], [1, 2], step=4, name="axes")
    plotter.plot(part, step=5)
    plotter.close()
    assert sink.names == [("<lambda>", 1), ("line", 2), ("a", 3), ("b", 3), ("axes", 4), ("part", 5)]


def test_each_renderer_draws_in_its_own_process_and_thread(make, kind):
    plotter, sink = make()
    plotter.plot(lambda: {f"{os.getpid()} {threading.current_thread().name}": line([1])}, step=0)
    plotter.close()
    ((name, _),) = sink.names
    pid, thread = name.split(" ", 1)
    assert (int(pid) == os.getpid()) == (kind != "process")
    assert thread == {"process": "MainThread", "thread": "sightglass-figures", "inline": "MainThread"}[kind]
    assert plotter.statistics().n_here == (kind != "process")


def test_changes_after_the_call_are_not_drawn(make):
    plotter, _ = make(Shows)
    small, large, listed = np.arange(3), np.arange(100_000), [1, 2]
    mapping = {"small": small, "large": large, "listed": listed, "more": {"x": 1}}

    def change():
        small[:], large[:], listed[:] = -1, -1, [3]
        mapping["more"]["x"] = 2

    seen = got(plotter, mapping, then=change)
    assert "array([0, 1, 2])" in seen
    assert "99997, 99998, 99999" in seen
    assert "'listed': [1, 2], 'more': {'x': 1}" in seen


def test_the_function_may_change_its_arrays_and_the_caller_does_not_see_it(make):
    plotter, sink = make()
    mine = np.ones(50_000)

    def draw(x):
        x -= x.mean()
        return line(x[:4])

    plotter.plot(draw, mine, step=0)
    plotter.plot(draw, np.ones(3), step=1)
    plotter.close()
    assert len(sink.records) == 2
    assert (mine == 1).all()


def test_the_tree_keeps_its_types(make):
    plotter, _ = make(Shows)
    value = {"t": (1, 2.5, True, None, "x"), "l": [np.float32(1.5)], "e": {}, "n": float("nan")}
    assert got(plotter, value) == repr(value)


def test_arrays_keep_dtype_and_shape(make):
    plotter, _ = make(Shows)
    dtypes = ["bool", "int8", "uint16", "int64", "float16", "float32", "float64", "complex64", "U3", "M8[s]"]
    arrays = [np.zeros(shape, dtype) for dtype in dtypes for shape in ((2, 3), (0, 4), ())]
    assert got(plotter, arrays) == repr(arrays)


def test_strided_and_transposed_arrays(make):
    plotter, _ = make(Shows)
    array = np.arange(24).reshape(4, 6)
    for view in (array.T, array[::2, ::-1], np.asfortranarray(array), np.broadcast_to(array[0], (2, 6))):
        assert got(plotter, view) == repr(np.array(view))


def test_bfloat16_comes_as_float32(make):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    plotter, _ = make(Shows)
    assert got(plotter, np.ones(2, ml_dtypes.bfloat16)) == "array([1., 1.], dtype=float32)"
    assert got(plotter, {"q": np.ones(2, ml_dtypes.int4)}) == "{'q': array([1, 1], dtype=int8)}"


def test_torch(make):
    torch = pytest.importorskip("torch")
    plotter, _ = make(Shows)
    weight = torch.ones(2, requires_grad=True)
    assert got(plotter, {"w": weight, "b": torch.ones(2, dtype=torch.bfloat16), "s": torch.tensor(3)}) == (
        "{'w': array([1., 1.], dtype=float32), 'b': array([1., 1.], dtype=float32), 's': 3}"
    )
    later = torch.zeros(20_000)
    assert got(plotter, later, then=lambda: later.add_(7)).startswith("array([0., 0., 0., ..., 0.")


def test_jax(make):
    jax = pytest.importorskip("jax")
    plotter, _ = make(Shows)
    ready = jax.block_until_ready(jax.numpy.arange(3))
    assert got(plotter, (ready, jax.numpy.ones(2, jax.numpy.bfloat16))) == (
        "(array([0, 1, 2], dtype=int32), array([1., 1.], dtype=float32))"
    )
    donated = jax.jit(lambda x: x + 1, donate_argnums=0)
    x = jax.block_until_ready(jax.numpy.zeros(20_000))
    assert got(plotter, x, then=lambda: donated(x)).startswith("array([0., 0., 0., ..., 0.")


def test_every_failure_is_reported_once_with_its_traceback(make):
    plotter, _ = make(on_error="ignore")
    plotter.flush()
    plotter._queue.failures.on_error = "raise"

    def three():
        return {name: FailsLater(name) for name in "abc"}

    errors = failures(plotter, lambda: plotter.plot(three, step=7))
    assert [(error.figure, error.step, error.kind) for error in errors] == [(n, 7, "ZeroDivisionError") for n in "abc"]
    assert all("1 / 0)  # when it is saved" in error.traceback for error in errors)
    plotter.flush()


def FailsLater(name):
    figure = line([1])
    figure.axes[0].xaxis.set_major_formatter(lambda x, at: 1 / 0)  # when it is saved
    return figure


def test_a_card_has_the_name_of_its_own_job(make, tmp_path):
    plotter, sink = make(None, on_error="ignore", save="png", save_dir=tmp_path)

    def draw(x):
        if x < 0:
            raise ValueError("negative $x_$ <&>")
        return line([x])

    plotter.plot(draw, 1, step=0, name="a")
    plotter.plot(draw, -1, step=0, name="b")
    plotter.flush()
    good = (tmp_path / "a_step0.png").read_bytes()
    assert sink.names == [("a", 0), ("b", 0)]
    assert sink.picture("b").shape[1] > 1.5 * sink.picture("a").shape[1]  # a card is wide
    counts = plotter.statistics()
    assert (counts.n_records, counts.n_errors) == (1, 1)
    plotter.plot(lambda: {"a": None}, step=0, name="c")
    plotter.plot(draw, -1, step=0, name="a")
    plotter.close()
    assert (tmp_path / "a_step0.png").read_bytes() == good  # a card replaces no file
    assert sorted(path.name for path in tmp_path.glob("*.png")) == ["a_step0.png", "b_step0.png"]


def nonsense():
    class Strange:
        def __repr__(self):
            raise RuntimeError("no repr")

    class Angry(Exception):
        def __str__(self):
            raise RuntimeError("no text")

    def angry():
        raise Angry

    return {
        "None": lambda: None,
        "number": lambda: 3,
        "array": lambda: np.zeros(3),
        "list": lambda: [1],
        "None in a mapping": lambda: {"x": None},
        "list in a mapping": lambda: {"x": [line([1])]},
        "number in a mapping": lambda: {"x": np.float32(1)},
        "no text as a name": lambda: {3: line([1])},
        "empty name": lambda: {"": line([1])},
        "exit": lambda: exit(3),
        "an exception without a text": angry,
        "no repr": lambda: {"x": Strange()},
        "wrong arguments": lambda x: x,
        "bad math": lambda: {"x": titled("$\\frac{$")},
        "huge numbers": lambda: {"x": line([-1e308, 1e308, -1e308])},
        "too large": lambda: {"x": sized(1e4)},
        "a generator": lambda: (i for i in ()),
    }


def titled(text):
    figure = line([1])
    figure.axes[0].set_title(text)
    return figure


def sized(inches):
    from matplotlib.figure import Figure

    return Figure(figsize=(inches, inches))


@pytest.mark.parametrize("what", list(nonsense()))
def test_nonsense_costs_its_own_figure_only(make, what):
    plotter, sink = make(None, on_error="ignore")
    plotter.plot(nonsense()[what], step=1, name="odd")
    plotter.plot(line, [1, 2], step=2)
    plotter.close()
    assert sink.names[-1] == ("line", 2)
    counts = plotter.statistics()
    if what == "huge numbers":
        assert len(sink.records) == 2
    else:
        assert counts.n_errors >= 1
        assert counts.last_error
        assert len(sink.records) == 2  # a card, and the next figure
    assert counts.n_waiting == 0


class Mute(RuntimeError):
    """An error whose text cannot be read."""

    def __str__(self):
        raise self


class Bad(Caught):
    """A sink that fails on the figure of step 1."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def write(self, records):
        if records[0].step == 1:
            raise self.error
        super().write(records)


def steps(sink):
    return [record.step for record in sink.records]


@pytest.mark.parametrize("error", [OSError("full"), SystemExit(3), Mute()])
def test_a_sink_that_raises_costs_its_own_figure_only(make, error):
    bad, good = Bad(error), Caught()
    plotter, _ = make(None, sinks=[bad, good], on_error="ignore")
    for step in range(3):
        plotter.plot(line, [1, 2], step=step)
    plotter.close()
    assert (steps(bad), steps(good)) == ([0, 2], [0, 1, 2])
    counts = plotter.statistics()
    assert (counts.n_errors, counts.n_waiting) == (1, 0)


@pytest.mark.parametrize("kind", ["process", "thread"], indirect=True)
@pytest.mark.parametrize("error", [RuntimeError("odd"), SystemExit(3)])
def test_results_that_cannot_be_passed_on_cost_their_figure_only(make, error):
    plotter, sink = make(None)
    (renderer,) = plotter._queue._start()
    pass_on = renderer._finished

    def fail(job, result, pictures):
        pass_on(job, result, pictures)
        if job.message.step == 0:
            raise error

    renderer._finished = fail
    with pytest.warns(RuntimeWarning, match="sightglass-figures.*'line'") as warned:  # noqa: PT031
        plotter.plot(line, [1, 2], step=0)
        plotter.flush()
        wait_until(lambda: len(warned))  # `fail` raises on another thread, perhaps after flush() returned
    for step in range(1, 4):
        plotter.plot(line, [1, 2], step=step)
        plotter.flush()
    assert (steps(sink), renderer.failures.n) == ([0, 1, 2, 3], 1)


@pytest.mark.parametrize("kind", ["thread", "inline"], indirect=True)  # a child gets no Ctrl-C
def test_ctrl_c_while_a_figure_is_drawn_leaves_nothing_waiting(make, kind):
    def interrupted():
        raise KeyboardInterrupt

    plotter, sink = make(None, on_error="ignore")
    if kind == "inline":  # the training's own thread
        with pytest.raises(KeyboardInterrupt):
            plotter.plot(interrupted, step=0)
    else:
        plotter.plot(interrupted, step=0)
    plotter.plot(line, [1, 2], step=1)
    plotter.flush()
    counts = plotter.statistics()
    assert (steps(sink), counts.n_errors, counts.n_waiting) == ([1], 1, 0)


def test_one_bad_figure_among_good_ones(make):
    plotter, sink = make(None)
    (error,) = failures(plotter, lambda: plotter.plot(lambda: {"a": line([1]), "b": None, "c": line([2])}, step=1))
    assert error.figure == "b"
    assert "as 'b', got NoneType None" in str(error)
    assert sink.names == [("a", 1), ("b", 1), ("c", 1)]


@pytest.mark.parametrize("values", [
    [np.nan, 1.0], [np.nan] * 3, [np.inf, -np.inf, 0.0], [], [0.0],
], ids=["nan", "all nan", "inf", "empty", "zero"])  # fmt: skip
@pytest.mark.parametrize("how", ["line", "image", "hist"])
def test_values_that_are_not_finite_give_a_figure_or_a_card(make, values, how):
    plotter, sink = make(None, on_error="ignore")

    def draw(x):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(2, 2))
        axes = figure.subplots()
        {"line": axes.plot, "image": lambda x: axes.imshow(x[None, :]), "hist": axes.hist}[how](x)
        return figure

    plotter.plot(draw, np.array(values), step=0)
    plotter.close()
    assert sink.names == [("draw", 0)]


def test_settings_and_open_figures_are_restored(make, kind):
    import matplotlib.pyplot as plt

    before, made, init = dict(mpl.rcParams), plt.get_fignums(), mpl.axes.Axes.__init__
    mine = plt.figure()
    plotter, sink = make(None, on_error="ignore")

    def draw(fail):
        import matplotlib.pyplot as plt

        plt.rcParams["lines.linewidth"] = 17
        figure, axes = plt.subplots()
        axes.plot([1])
        if fail:
            raise ValueError
        return {"x": figure}

    for step in range(6):
        plotter.plot(draw, bool(step % 2), step=step)
    plotter.close()
    assert len(sink.records) == 6
    assert plt.get_fignums() == [*made, mine.number]
    plt.close(mine)
    assert dict(mpl.rcParams) == before
    assert mpl.axes.Axes.__init__ is init


def test_the_theme_applies_while_a_function_draws(make):
    plotter, _ = make(None, theme={"style": "dark", "size": "column"})

    def draw():
        import matplotlib as mpl

        rc = mpl.rcParams
        raise ValueError([rc["axes.grid.axis"], rc["figure.facecolor"], rc["figure.figsize"][0]])

    failures(plotter, lambda: plotter.plot(draw, step=0))
    assert "['y', '#16191D', 3.25]" in plotter.statistics().last_error


def test_closing(make):
    plotter, sink = make()
    with plotter:
        plotter.plot(line, [1], step=0)
    assert plotter.closed
    assert len(sink.records) == 1
    plotter.close()
    for call in (lambda: plotter.plot(line, [1], step=1), lambda: plotter.submit({}, 1), lambda: plotter.log({}, 1)):
        with pytest.raises(ValueError, match="closed"):
            call()
    idle, _ = make()
    idle.close()


@pytest.mark.parametrize("kind", ["process", "thread"], indirect=True)  # inline, it raises within the call
def test_an_error_of_the_training_stays_the_one_that_is_raised(make, kind):
    plotter, _ = make(Shows)
    with pytest.raises(ZeroDivisionError) as caught, plotter:  # noqa: PT012
        plotter.submit(1, 1)
        raise ZeroDivisionError
    assert "could not be drawn" in caught.value.__notes__[0]


def test_the_base_class_is_known_by_its_function():
    class Base:
        plot = staticmethod(no_plot)

    class Inherits(Base):
        pass

    class Overrides(Base):
        plot = staticmethod(lambda i: {})

    assert [Plotter(model)._function is None for model in (Base, Inherits, Overrides, None, int)] == [
        True, True, False, True, True,
    ]  # fmt: skip
    assert no_plot({}) == {}
