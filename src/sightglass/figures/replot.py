"""Figures drawn again, from the arguments that were kept beside them.

The function is imported by its name, as it is now: nothing that a file holds is run, but for what it names (see
`functions`). Nothing in the run changes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from sightglass.core.errors import DamagedError, FigureError, UnknownNameError

from .closures import load_recorded
from .drawing import Drawer
from .figure_files import FigureFileNames, Inputs, at_step, read_about, read_inputs, write
from .messages import DrawFigure, Output, error
from .plotter import DPI, FOLDER, look_of

Form = Literal["pdf", "svg", "png"]


def replot(
    folder: str | os.PathLike[str],
    name: str,
    *,
    step: float | None = None,
    look: str | Mapping[str, Any] | None = None,
    form: Form = "pdf",
    out: str | os.PathLike[str] | None = None,
    function: str | None = None,
    dpi: float = DPI,
) -> Path:
    """Draw a figure again, and return the file.

    Args:
        folder: A run's directory, or one that a plotter saved into.
        name: The figure.
        step: At which step; by default at the last one.
        look: The theme; by default the one that it had.
        form: The kind of file.
        out: The file, or the folder for it; by default the working directory.
        function: What draws, as module:function; by default what did then.
        dpi: Dots an inch of a PNG.

    Raises:
        UnknownNameError: There is no such figure, or it was not drawn at this step.
        FigureError: It cannot be drawn.
        OSError: The file cannot be written.
    """
    path = find(Path(folder), name, step)
    about, arguments = read_inputs(path)
    output = Output(look=about.look if look is None else look_of(look), dpi=dpi, folder="-", formats=(form,))
    order = DrawFigure(
        id=0, name=name, step=about.step, function=function or about.function, blob=b"", spans=[], output=output
    )
    place = Path.cwd() if out is None else Path(out)
    if out is None or place.is_dir():
        place /= at_step(FigureFileNames().stem(name), about.step, form)
    before, mode = list(sys.path), os.environ.get("SIGHTGLASS_MODE")
    sys.path.insert(0, os.getcwd())
    os.environ["SIGHTGLASS_MODE"] = "disabled"
    try:
        draws = load_recorded(order.function)
        forms, problems = Drawer().render(order, name, draws, arguments)
    finally:
        sys.path[:] = before
        os.environ.pop("SIGHTGLASS_MODE")
        if mode is not None:
            os.environ["SIGHTGLASS_MODE"] = mode
    if problems:
        raise error(problems[0], about.step)
    data = forms[form]
    write(place, lambda file: file.write(data))
    return place


def find(folder: Path, name: str, step: float | None) -> Path:
    """Find the arguments of a figure.

    Raises:
        UnknownNameError: There is no such figure, or it was not drawn at this step.
        FigureError: No figures are kept there.
    """
    found: dict[str, dict[float, Path]] = {}
    for path, about in _kept(folder):
        for figure in about.figures:
            found.setdefault(figure, {})[about.step] = path
    if not found:
        raise FigureError(f"Expected the inputs of figures in {str(folder)!r}, there are none", figure=name)
    if name not in found:
        raise UnknownNameError("figure", name, found)
    steps = found[name]
    if step is None:
        return steps[max(steps)]
    if step not in steps:
        raise UnknownNameError("step", f"{step:g}", [f"{at:g}" for at in sorted(steps)], where=f"of figure {name!r}")
    return steps[step]


def _kept(folder: Path) -> list[tuple[Path, Inputs]]:
    kept = []
    for path in [*folder.glob("*.npz"), *(folder / FOLDER).glob("*.npz")]:
        try:
            kept.append((path, read_about(path)))
        except (DamagedError, OSError, msgspec.MsgspecError):
            continue
    return kept
