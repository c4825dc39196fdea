"""Which view shows which values: one pure function for all surfaces.

Theory of operation
    `form_of` reduces a value to its `Form`: a kind ("number", "matrix" …) and a length. It reads types and shapes only,
    so it never waits for a device. `choose` depends only on the forms of the streams that share a view, so the
    terminal, the browser, the notebook and Matplotlib agree.

    ========================== ============================= =======================================
    value                      kind                          default view
    ========================== ============================= =======================================
    number                     number                        line over the steps
    tuple of two numbers       pair                          line in x, y (`view="scatter"`: its points)
    tuple of three numbers     triple                        line in x, y, z
    (number, number, text)     note                          annotated line in x, y
    array or list of numbers   vector                        bars up to `MAX_BARS` long, else histogram
    `Histogram`                histogram                     histogram
    array of two dimensions    matrix                        heat map
    mapping of numbers         numbers                       one bar per name (`view="line"`: one line per name)
    `Image`, `Images`          image, images                 grid of images
    uint8 array (h, w, 1|3|4)  image (images with a 4th)     grid of images
    uint8 array (h, w)         pixels, from 8 by 8 on        grid of images (`view="heatmap"`: a heat map)
    list of matrices or images images                        grid of images; tuples add captions
    `Figure`                   figure                        picture
    `Audio`, several           audio                         sounds
    `Table`                    rows                          sheet
    text, `Text`               text                          log
    anything else              other                         table
    ========================== ============================= =======================================

    Tuples are points and lists are vectors, because queries produce them this way: `(b.x, b.y)` and `collect()`. Nested
    mappings of numbers (such as a tree of parameters) are `numbers`, with their names joined by "/".

    Streams share a view if it can show all of them and is the default view of at least one: a number and a histogram
    share a line chart, in which the histogram is a band. Log and table can show anything, so they are shared only by
    texts and values without a drawable kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import numpy as np

from sightglass.core.errors import ViewError, unknown
from sightglass.core.table import Table
from sightglass.core.values import (
    Audio,
    DeviceHistogram,
    Figure,
    Histogram,
    Image,
    Images,
    Tensor,
    Text,
    Value,
    array_kind,
)

from .frames import is_grid

MAX_BARS = 32  # as many names as fit beside each other, or as rows of a chart
MAX_NESTING = 8

Kind = Literal[
    "number",
    "pair",
    "triple",
    "note",
    "vector",
    "histogram",
    "matrix",
    "pixels",
    "numbers",
    "image",
    "images",
    "figure",
    "audio",
    "rows",
    "text",
    "other",
]
ViewName = Literal[
    "line",
    "annotated",
    "xy",
    "scatter",
    "line3d",
    "bars",
    "histogram",
    "heatmap",
    "images",
    "picture",
    "sounds",
    "sheet",
    "log",
    "table",
]
VIEWS: tuple[ViewName, ...] = get_args(ViewName)

# The first view of each kind is its default.
VIEWS_OF_KIND: Mapping[Kind, tuple[ViewName, ...]] = {
    "number": ("line", "histogram", "bars", "log", "table"),
    "pair": ("xy", "scatter", "annotated", "log", "table"),
    "triple": ("line3d", "xy", "scatter", "log", "table"),
    "note": ("annotated", "xy", "scatter", "log", "table"),
    "vector": ("bars", "histogram", "line", "log", "table"),
    "histogram": ("histogram", "line", "log", "table"),
    "matrix": ("heatmap", "histogram", "log", "table"),
    "pixels": ("images", "heatmap", "histogram", "log", "table"),
    "numbers": ("bars", "line", "log", "table"),
    "image": ("images", "log", "table"),
    "images": ("images", "log", "table"),
    "figure": ("picture", "log", "table"),
    "audio": ("sounds", "log", "table"),
    "rows": ("sheet", "log", "table"),
    "text": ("log", "table"),
    "other": ("table", "log"),
}
MIN_PIXELS: Final = 8  # on a side: smaller arrays of uint8 are rather counts or labels
TEXT_VIEWS: frozenset[ViewName] = frozenset({"log", "table"})
ROW_VIEWS: frozenset[ViewName] = TEXT_VIEWS | {"sounds"}  # where nothing plays, a sound is a row of its facts

KIND_NAMES: Mapping[Kind, str] = {
    "number": "a number",
    "pair": "a pair of numbers",
    "triple": "a triple of numbers",
    "note": "an annotated pair of numbers",
    "vector": "a vector",
    "histogram": "a histogram",
    "matrix": "a matrix",
    "pixels": "a grey image",
    "numbers": "a mapping of numbers",
    "image": "an image",
    "images": "several images",
    "figure": "a figure",
    "audio": "a sound",
    "rows": "a table",
    "text": "text",
    "other": "a value that cannot be drawn",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The properties of a value that decide its view.

    Attributes:
        kind: The kind of value.
        length: How many numbers, names or images it holds; 1 for a single one.
    """

    kind: Kind
    length: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The view that streams share.

    Attributes:
        view: The name of the view.
        kinds: The kind of each stream, in their order.
        possible: All views that can show all of them, including the chosen one.
    """

    view: ViewName
    kinds: tuple[Kind, ...]
    possible: tuple[ViewName, ...]


def choose(forms: Sequence[Form], *, view: str | None = None, names: Sequence[str] = ()) -> Choice:
    """Choose the view that streams share.

    Args:
        forms: One for each stream, at least one.
        view: The view to use; by default the one that suits the values.
        names: The streams' names, for errors.

    Returns:
        The choice; the same for the same forms, in every process.

    Raises:
        ViewError: The view is unknown or cannot show one of the streams, or the streams cannot share a view.

    >>> choose([Form(kind="number")]).view, choose([Form(kind="number"), Form(kind="histogram")]).view
    ('line', 'line')
    """
    if not forms:
        raise ViewError("Cannot choose a view: no stream has a value yet.")
    names = tuple(names) or tuple(f"stream {i}" for i in range(1, len(forms) + 1))
    views_each = [views_of(form) for form in forms]
    kinds = tuple(form.kind for form in forms)
    possible = tuple(name for name in VIEWS if all(name in views for views in views_each))
    if view is not None:
        return Choice(view=_checked(view, forms, names), kinds=kinds, possible=possible)
    defaults = {views[0] for views in views_each}
    shared = [name for name in possible if name in defaults and (name not in TEXT_VIEWS or defaults <= TEXT_VIEWS)]
    if not shared:
        raise ViewError(_clash_message(forms, names))
    # The default view of all of them wins over a view that merely can show them.
    return Choice(view=views_each[0][0] if len(defaults) == 1 else shared[0], kinds=kinds, possible=possible)


def views_of(form: Form) -> tuple[ViewName, ...]:
    """Return the views that can show a form, its default first."""
    views = VIEWS_OF_KIND[form.kind]
    return views[1:] if form.kind == "vector" and form.length > MAX_BARS else views


def form_of(value: object) -> Form:
    """Return the form of a value, from its type and its shape."""
    match value:
        case Histogram() | DeviceHistogram():
            return Form(kind="histogram")
        case Image():
            return Form(kind="image")
        case Images():
            return Form(kind="images", length=len(value.value))
        case Figure():
            return Form(kind="figure")
        case Audio():
            return Form(kind="audio")
        case Table():
            return Form(kind="rows", length=len(value))
        case Text() | str():
            return Form(kind="text")
        case Tensor():
            return _array_form(value.value, pictures=False)
        case Mapping():
            names = list(flatten(value))
            numeric = bool(names) and all(is_number(item) for _, item in names)
            return Form(kind="numbers", length=len(names)) if numeric else Form(kind="other")
        case tuple() | list() if value and all(isinstance(item, Audio) for item in value):
            return Form(kind="audio", length=len(value))
        case tuple():
            return _tuple_form(value)
        case list() if is_grid(value):
            return Form(kind="images", length=len(value))
        case list() if value and all(map(is_number, value)):
            return Form(kind="vector", length=len(value))
    if array_kind(value) is not None:
        return _array_form(value, pictures=True)
    return Form(kind="number") if is_number(value) else Form(kind="other")


def is_number(value: Value) -> bool:
    """Return whether a value is one real number; booleans and zero-dimensional arrays are."""
    if isinstance(value, bool | int | float | np.bool_ | np.integer | np.floating):
        return True
    if array_kind(value) is not None:
        return tuple(value.shape) == () and _is_real(value)
    return isinstance(value, np.generic) and _is_real(value)


def flatten(value: Mapping[Any, Any], *, prefix: str = "", depth: int = MAX_NESTING) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of nested mappings, with the names of the levels joined by "/"."""
    for key, item in value.items():
        name = f"{prefix}{key}"
        if isinstance(item, Mapping) and depth > 1:
            yield from flatten(item, prefix=f"{name}/", depth=depth - 1)
        else:
            yield name, item


def _tuple_form(value: tuple[Any, ...]) -> Form:
    numeric = [is_number(item) for item in value]
    if len(value) == 3 and numeric == [True, True, False] and isinstance(value[2], str | Text):
        return Form(kind="note")
    if not value or not all(numeric):
        return Form(kind="other")
    if len(value) in (2, 3):
        return Form(kind="pair" if len(value) == 2 else "triple")
    return Form(kind="number") if len(value) == 1 else Form(kind="vector", length=len(value))


def _array_form(array: Value, *, pictures: bool) -> Form:
    if array_kind(array) is None:
        array = np.asarray(array)
    shape = tuple(int(n) for n in array.shape)
    if not _is_real(array) or 0 in shape:
        return Form(kind="other")
    if pictures and len(shape) in (3, 4) and shape[-1] in (1, 3, 4) and _dtype_name(array) == "uint8":
        return Form(kind="image") if len(shape) == 3 else Form(kind="images", length=shape[0])
    match shape:
        case ():
            return Form(kind="number")
        case (length,):
            return Form(kind="vector", length=length)
        case (rows, columns):
            if pictures and min(shape) >= MIN_PIXELS and _dtype_name(array) == "uint8":
                return Form(kind="pixels", length=rows * columns)
            return Form(kind="matrix", length=rows * columns)
    return Form(kind="other")


def _is_real(array: Value) -> bool:
    return _dtype_name(array).startswith(("float", "bfloat", "int", "uint", "bool"))


def _dtype_name(array: Value) -> str:
    return str(getattr(array.dtype, "name", array.dtype)).removeprefix("torch.")


def _checked(view: str, forms: Sequence[Form], names: Sequence[str]) -> ViewName:
    if view not in VIEWS:
        raise ViewError(unknown("view", view, VIEWS))
    for form, name in zip(forms, names, strict=True):
        views = views_of(form)
        if view not in views:
            length = f" of length {form.length}" if form.kind == "vector" else ""
            raise ViewError(
                f"view={view!r} cannot show stream {name!r}, which is {KIND_NAMES[form.kind]}{length}. "
                f"Views that can: {', '.join(views)}."
            )
    return view


def _clash_message(forms: Sequence[Form], names: Sequence[str]) -> str:
    first = forms[0]
    other = next((i for i, form in enumerate(forms) if not _share(first, form)), len(forms) - 1)
    return (
        f"Streams {names[0]!r} and {names[other]!r} cannot share a view: {names[0]!r} is {KIND_NAMES[first.kind]} "
        f"(view {views_of(first)[0]!r}), {names[other]!r} is {KIND_NAMES[forms[other].kind]} "
        f"(view {views_of(forms[other])[0]!r}). Plot them separately."
    )


def _share(one: Form, other: Form) -> bool:
    own = {views_of(one)[0], views_of(other)[0]}
    return bool((own - TEXT_VIEWS if not own <= TEXT_VIEWS else own) & set(views_of(one)) & set(views_of(other)))
