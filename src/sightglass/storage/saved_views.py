"""Saved views of a folder of runs: `views.json` beside them has addresses on the page by the names of the views."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from sightglass.core.errors import StorageError, UnknownNameError

from .object_file import change_object, read_object

NAME: Final = "views.json"
MAX_VIEWS: Final = 500


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
        ValueError: There would be too many views.
    """
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
