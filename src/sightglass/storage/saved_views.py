"""Saved views of a folder of runs: `views.json` beside them has addresses on the page by the names of the views."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from sightglass.core.errors import StorageError, UnknownNameError

from .object_file import change_object, read_object

NAME: Final = "views.json"
MAX_VIEWS: Final = 500
MAX_NAME: Final = 100
MAX_ADDRESS: Final = 16_384
VIEW_NAME: Final = r"^\S(.*\S)?$"
TOKEN: Final = re.compile(r"([?&])token=[^&]*&?")


def read_views(folders: Sequence[Path]) -> dict[str, str]:
    """Return the addresses of the views in some folders by their names; of one name, that of the first folder.

    Raises:
        OSError: A file cannot be read, or is not JSON.
    """
    found: dict[str, str] = {}
    for folder in folders:
        for name, address in read_object(folder / NAME).items():
            if isinstance(address, str) and address.startswith("#/"):  # a link that leads elsewhere is no view
                found.setdefault(name, address)
    return dict(sorted(found.items(), key=lambda view: view[0].casefold()))


def save_view(folders: Sequence[Path], name: str, address: str | None) -> None:
    """Give an address a name: in the folder that has a view of that name, else in the first one.

    Args:
        folders: The folders.
        name: The name.
        address: The address; `None` to remove the view.

    Raises:
        UnknownNameError: There is no view to remove.
        StorageError: There is no folder, or the file cannot be written, or is not JSON.
        ValueError: The name or the address is not one, or there would be too many views.
    """
    if address is not None:
        address = _checked(name, address)
    if not folders:
        raise StorageError("No folder is served: views are saved beside runs")
    having = [folder for folder in folders if name in read_object(folder / NAME)]
    if address is None and not having:
        raise UnknownNameError("view", name, list(read_views(folders)))

    def changed(found: dict[str, Any]) -> dict[str, Any]:
        others = {key: value for key, value in found.items() if key != name}
        if address is None:
            return others
        if len(others) >= MAX_VIEWS:
            raise ValueError(f"Expected at most {MAX_VIEWS} views, remove some first")
        return others | {name: address}

    change_object([*having, folders[0]][0] / NAME, changed)


def rename_view(folders: Sequence[Path], name: str, new: str) -> None:
    """Give a view another name, in its folder.

    Raises:
        UnknownNameError: There is no view of this name.
        StorageError: The file cannot be written, or is not JSON.
        ValueError: The new name is not one, or another view has it.
    """
    views = read_views(folders)
    if name not in views:
        raise UnknownNameError("view", name, list(views))
    _checked(new, views[name])
    folder = next(folder for folder in folders if name in read_object(folder / NAME))

    def changed(found: dict[str, Any]) -> dict[str, Any]:
        if new in found:
            raise ValueError(f"There is a view {new!r} already: delete it first")
        return {new if key == name else key: address for key, address in found.items()}

    change_object(folder / NAME, changed)


def _checked(name: str, address: str) -> str:
    """Return an address as it is saved: what follows the `#` of a link, without a token.

    Raises:
        ValueError: It is not one, or the name is not one.
    """
    if len(name) > MAX_NAME or not re.fullmatch(VIEW_NAME, name):
        raise ValueError(f"Expected a name of 1 to {MAX_NAME} characters, without spaces around it, got {name!r:.200}")
    fragment = TOKEN.sub(r"\1", address[address.find("#") :]).rstrip("?&")
    if not fragment.startswith("#/") or len(fragment) > MAX_ADDRESS:
        raise ValueError(
            f"Expected an address of the page such as '#/charts?smooth=0.5', of at most {MAX_ADDRESS:,} characters, "
            f"got {address!r:.200}"
        )
    return fragment
