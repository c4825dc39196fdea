"""The saved views of folders of runs: names for what the page shows, in `views.json` beside the runs."""

from __future__ import annotations

import os
from collections.abc import Iterator, MutableMapping, Sequence
from pathlib import Path

from sightglass.core.errors import RunNotFoundError, UnknownNameError
from sightglass.core.process.runs_folder import runs_folder
from sightglass.storage.object_file import read_views, rename_view, save_view


class SavedViews(MutableMapping[str, str]):
    """The saved views of some folders: their addresses by their names. Made by `sightglass.saved_views`.

    It reads the files each time, and changes them at once: other programs and open pages may change them, too.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = tuple(folders)

    def __getitem__(self, name: str) -> str:
        """Return the address of a view, such as `#/charts?smooth=0.5`."""
        views = read_views(self._folders)
        if name not in views:
            raise UnknownNameError("view", name, list(views))
        return views[name]

    def __setitem__(self, name: str, address: str) -> None:
        """Save an address, or a link to the page, under a name; the token of a link is left out.

        Raises:
            ValueError: The name or the address is not one, or there are too many views.
            StorageError: The file cannot be written, or is not JSON.
        """
        save_view(self._folders, name, address)

    def __delitem__(self, name: str) -> None:
        """Remove a view; errors as of `__getitem__` and `__setitem__`."""
        save_view(self._folders, name, None)

    def rename(self, name: str, new: str) -> None:
        """Give a view another name.

        Raises:
            UnknownNameError: There is no view of this name.
            ValueError: The new name is not one, or another view has it.
            StorageError: The file cannot be written, or is not JSON.
        """
        rename_view(self._folders, name, new)

    def __contains__(self, name: object) -> bool:
        return name in read_views(self._folders)

    def __iter__(self) -> Iterator[str]:
        return iter(read_views(self._folders))

    def __len__(self) -> int:
        return len(read_views(self._folders))

    def __repr__(self) -> str:
        return f"<SavedViews in {' and '.join(repr(str(folder)) for folder in self._folders)}: {', '.join(self)}>"


def saved_views(path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None) -> SavedViews:
    """Return the saved views of a folder of runs, or of several.

    A new view is saved in the first folder, another one where it is.

    Args:
        path: The folder, or several. By default that of the environment's `SIGHTGLASS_RUNS`, else "runs".

    Raises:
        RunNotFoundError: A folder does not exist.
    """
    paths = [runs_folder() if path is None else path] if path is None or isinstance(path, str | os.PathLike) else path
    folders = [Path(one) for one in paths]
    for folder in folders:
        if not folder.is_dir():
            raise RunNotFoundError(f"Expected a folder of runs, got {str(folder)!r}")
    return SavedViews(folders)
