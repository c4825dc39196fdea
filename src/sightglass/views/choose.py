"""Which view shows which values: one pure function for every surface.

Theory of operation
    `form_of` reduces a value to its `Form`: a kind ("number", "matrix" …) and a length. It looks at types and shapes
    only, so it never waits for a device. `choose` takes the forms of the streams that are to share a view, and
    nothing else, so terminal, browser, notebook and matplotlib agree.

    ========================== ============================= =======================================
    value                      kind                          view by itself
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
    list of matrices or images images                        grid of images; tuples add captions
    `Figure`                   figure                        picture
    text, `Text`               text                          log
    anything else              other                         table
    ========================== ============================= =======================================

    Tuples are points and lists are vectors, since that is how queries make them: `(b.x, b.y)` against `collect()`.
    Nested mappings of numbers (the shape of a tree of parameters) are `numbers` with their names joined by "/".

    Streams share a view when each can be drawn in it, and when it is the view that at least one of them would have by
    itself: a number and a histogram share a line chart, in which the histogram is a band; nothing is ever drawn in a
    way that none of the streams asked for. Log and table show anything, and therefore count only among texts and
    other things.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from sightglass.core.errors import ViewError, unknown
from sightglass.core.values import DeviceHistogram, Figure, Histogram, Image, Images, Tensor, Text, array_kind

from .grid import is_grid

MAX_BARS = 32
MAX_NESTING = 8

Kind = Literal[
    "number",
    "pair",
    "triple",
    "note",
    "vector",
    "histogram",
    "matrix",
    "numbers",
    "image",
    "images",
    "figure",
    "text",
    "other",
]
ViewName = Literal[
    "line", "annotated", "xy", "scatter", "line3d", "bars", "histogram", "heatmap", "images", "picture", "log", "table"
]
VIEWS: tuple[ViewName, ...] = get_args(ViewName)

# The first view of each kind is the one that it has by itself.
VIEWS_OF_KIND: Mapping[Kind, tuple[ViewName, ...]] = {
    "number": ("line", "histogram", "bars", "log", "table"),
    "pair": ("xy", "scatter", "annotated", "log", "table"),
    "triple": ("line3d", "xy", "scatter", "log", "table"),
    "note": ("annotated", "xy", "scatter", "log", "table"),
    "vector": ("bars", "histogram", "line", "log", "table"),
    "histogram": ("histogram", "line", "log", "table"),
    "matrix": ("heatmap", "histogram", "log", "table"),
    "numbers": ("bars", "line", "log", "table"),
    "image": ("images", "log", "table"),
    "images": ("images", "log", "table"),
    "figure": ("picture", "log", "table"),
    "text": ("log", "table"),
    "other": ("table", "log"),
}
TEXT_VIEWS: frozenset[ViewName] = frozenset({"log", "table"})

KIND_NAMES: Mapping[Kind, str] = {
    "number": "a number",
    "pair": "a pair of numbers",
    "triple": "a triple of numbers",
    "note": "an annotated pair of numbers",
    "vector": "a vector",
    "histogram": "a histogram",
    "matrix": "a matrix",
    "numbers": "a mapping of numbers",
    "image": "an image",
    "images": "several images",
    "figure": "a figure",
    "text": "a text",
    "other": "a value of no drawable kind",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What a choice needs to know of a value.

    Attributes:
        kind: What the value is.
        length: How many numbers, names or images it holds; 1 for what is single.
    """

    kind: Kind
    length: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The view that some streams share.

    Attributes:
        view: The name of the view.
        kinds: The kind of each stream, in their order.
        possible: Every view that could show all of them, the chosen one among them.
    """

    view: ViewName
    kinds: tuple[Kind, ...]
    possible: tuple[ViewName, ...]


def choose(forms: Sequence[Form], *, view: str | None = None, names: Sequence[str] = ()) -> Choice:
    """Choose the view for streams that are to be seen together.

    Args:
        forms: One for each stream, at least one.
        view: The view to use in any case.
        names: The streams' names, for messages.

    Returns:
        The choice; the same for the same forms, in every process.

    Raises:
        ViewError: The view is unknown, cannot show one of the streams, or none can show them all.

    >>> choose([Form(kind="number")]).view, choose([Form(kind="number"), Form(kind="histogram")]).view
    ('line', 'line')
    """
    if not forms:
        raise ViewError("There is no view of nothing: give at least one stream that has a value.")
    names = tuple(names) or tuple(f"number {i}" for i in range(1, len(forms) + 1))
    able = [views_of(form) for form in forms]
    kinds = tuple(form.kind for form in forms)
    possible = tuple(name for name in VIEWS if all(name in views for views in able))
    if view is not None:
        return Choice(view=_checked(view, forms, names), kinds=kinds, possible=possible)
    wanted = {views[0] for views in able}
    shared = [name for name in possible if name in wanted and (name not in TEXT_VIEWS or wanted <= TEXT_VIEWS)]
    if not shared:
        raise ViewError(_clash(forms, names))
    # A view that all have by themselves wins over one that merely could show them.
    return Choice(view=able[0][0] if len(wanted) == 1 else shared[0], kinds=kinds, possible=possible)


def views_of(form: Form) -> tuple[ViewName, ...]:
    """Return the views that can show a form, the one it has by itself first."""
    views = VIEWS_OF_KIND[form.kind]
    return views[1:] if form.kind == "vector" and form.length > MAX_BARS else views


def form_of(value: Any) -> Form:
    """Tell the form of a value from its type and its shape."""
    match value:
        case Histogram() | DeviceHistogram():
            return Form(kind="histogram")
        case Image():
            return Form(kind="image")
        case Images():
            return Form(kind="images", length=len(value.value))
        case Figure():
            return Form(kind="figure")
        case Text() | str():
            return Form(kind="text")
        case Tensor():
            return _array_form(value.value, pictures=False)
        case Mapping():
            names = list(flatten(value))
            numeric = bool(names) and all(is_number(item) for _, item in names)
            return Form(kind="numbers", length=len(names)) if numeric else Form(kind="other")
        case tuple():
            return _tuple_form(value)
        case list() if is_grid(value):
            return Form(kind="images", length=len(value))
        case list() if value and all(map(is_number, value)):
            return Form(kind="vector", length=len(value))
    if array_kind(value) is not None:
        return _array_form(value, pictures=True)
    return Form(kind="number") if is_number(value) else Form(kind="other")


def is_number(value: Any) -> bool:
    """Tell whether a value is one real number, a truth value and an array without a dimension included."""
    if isinstance(value, bool | int | float | np.bool_ | np.integer | np.floating):
        return True
    if array_kind(value) is not None:
        return tuple(value.shape) == () and _is_real(value)
    return isinstance(value, np.generic) and _is_real(value)


def flatten(value: Mapping[Any, Any], *, prefix: str = "", depth: int = MAX_NESTING) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of nested mappings; the names of the levels are joined by "/"."""
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


def _array_form(array: Any, *, pictures: bool) -> Form:
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
            return Form(kind="matrix", length=rows * columns)
    return Form(kind="other")


def _is_real(array: Any) -> bool:
    return _dtype_name(array).startswith(("float", "bfloat", "int", "uint", "bool"))


def _dtype_name(array: Any) -> str:
    return str(getattr(array.dtype, "name", array.dtype)).removeprefix("torch.")


def _checked(view: str, forms: Sequence[Form], names: Sequence[str]) -> ViewName:
    if view not in VIEWS:
        raise ViewError(unknown("view", view, VIEWS))
    for form, name in zip(forms, names, strict=True):
        views = views_of(form)
        if view not in views:
            because = f" of {form.length}" if form.kind == "vector" else ""
            raise ViewError(
                f"Stream {name!r} is {KIND_NAMES[form.kind]}{because}, which view={view!r} cannot show. "
                f"It can be: {', '.join(views)}."
            )
    return view


def _clash(forms: Sequence[Form], names: Sequence[str]) -> str:
    first = forms[0]
    other = next((i for i, form in enumerate(forms) if not _share(first, form)), len(forms) - 1)
    return (
        f"Streams {names[0]!r} and {names[other]!r} cannot share a view: {names[0]!r} is {KIND_NAMES[first.kind]}, "
        f"seen as {views_of(first)[0]}; {names[other]!r} is {KIND_NAMES[forms[other].kind]}, "
        f"seen as {views_of(forms[other])[0]}. Plot them apart."
    )


def _share(one: Form, other: Form) -> bool:
    own = {views_of(one)[0], views_of(other)[0]}
    return bool((own - TEXT_VIEWS if not own <= TEXT_VIEWS else own) & set(views_of(one)) & set(views_of(other)))
