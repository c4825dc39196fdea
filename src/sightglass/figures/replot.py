"""Draw figures again, from the arguments stored beside them.

The function is imported by its name, as it is now; no code from a file is run (see `closures`). The run stays as it is.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from sightglass.core.errors import DamagedError, FigureError, UnknownNameError

from .closures import load_recorded
from .drawing import Drawer
from .figure_files import Inputs, at_step, read_about, read_inputs, safe, write
from .messages import DrawFigure, Output, figure_error
from .plotter import DPI, FOLDER, theme_of

Form = Literal["pdf", "svg", "png", "json"]


def replot(
    folder: str | os.PathLike[str],
    name: str,
    *,
    step: float | None = None,
    theme: str | Mapping[str, object] | None = None,
    form: Form = "pdf",
    out: str | os.PathLike[str] | None = None,
    function: str | None = None,
    dpi: float = DPI,
) -> Path:
    """Draw a figure again, and return the file.

    Args:
        folder: A run's directory, or one that a plotter saved into.
        name: The figure.
        step: The step; by default the last one.
        theme: The name of a style, or arguments of `theme` by name; by default the theme that the figure had.
        form: The file format; "json" is that of Plotly's figures.
        out: The file, or the folder for it; by default the working directory.
        function: The function that draws, as module:function; by default the one that drew the figure.
        dpi: The resolution of a PNG, in dots per inch.

    Raises:
        UnknownNameError: The folder has no such figure, or the figure was not drawn at this step.
        FigureError: The figure cannot be drawn.
        OSError: The file cannot be written.
    """
    path = find(Path(folder), name, step)
    about, arguments = read_inputs(path)
    output = Output(theme=about.theme if theme is None else theme_of(theme), dpi=dpi, folder=b"-", formats=(form,))
    message = DrawFigure(
        id=0, name=name, step=about.step, function=function or about.function, blob=b"", spans=[], output=output
    )
    place = Path.cwd() if out is None else Path(out)
    if out is None or place.is_dir():
        place /= at_step(safe(name), about.step, form)
    before, mode = list(sys.path), os.environ.get("SIGHTGLASS_MODE")
    sys.path.insert(0, os.getcwd())
    os.environ["SIGHTGLASS_MODE"] = "disabled"
    try:
        draws = load_recorded(message.function)
        files, failures = Drawer().render(message, name, draws, arguments)
    finally:
        sys.path[:] = before
        os.environ.pop("SIGHTGLASS_MODE")
        if mode is not None:
            os.environ["SIGHTGLASS_MODE"] = mode
    if failures:
        raise figure_error(failures[0], about.step)
    if form not in files:
        expected = f"Expected {' or '.join(files)} as the format of figure {name!r}, which is Plotly's, got {form!r}"
        raise FigureError(expected, figure=name, step=about.step)
    write(place, lambda file: file.write(files[form]))
    return place


def find(folder: Path, name: str, step: float | None) -> Path:
    """Find the arguments of a figure.

    Raises:
        UnknownNameError: The folder has no such figure, or the figure was not drawn at this step.
        FigureError: The folder has no inputs of figures.
    """
    found: dict[str, dict[float, Path]] = {}
    for path, about in _stored_inputs(folder):
        for figure in about.figures:
            found.setdefault(figure, {})[about.step] = path
    if not found:
        raise FigureError(f"Expected the inputs of figures in {str(folder)!r}, found none", figure=name)
    if name not in found:
        raise UnknownNameError("figure", name, found)
    steps = found[name]
    if step is None:
        return steps[max(steps)]
    if step not in steps:
        raise UnknownNameError("step", f"{step:g}", [f"{at:g}" for at in sorted(steps)], where=f"of figure {name!r}")
    return steps[step]


def _stored_inputs(folder: Path) -> list[tuple[Path, Inputs]]:
    found = []
    for path in [*folder.glob("*.npz"), *(folder / FOLDER).glob("*.npz")]:
        try:
            found.append((path, read_about(path)))
        except (DamagedError, OSError, msgspec.MsgspecError):
            continue
    return found
