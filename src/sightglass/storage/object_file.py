"""Small files of JSON that people edit, by hand or through a program.

Rule 1: a file is replaced as a whole, so a reader never sees half of one. A change is applied to what the file says
then, under a lock: of two writers, the later one wins where both change the same, and nothing else is lost. Where a
file system has no locks, the threads of a process still take turns.
Rule 2: a file that is not JSON, because somebody edited it by hand, is not replaced.

Two kinds stand here: what people write down about runs, and saved views of the page.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from sightglass.core.errors import StorageError, UnknownNameError
from sightglass.core.process.unpatched import threading, time

from .file_system import LOCAL, File, open_own, written_aside

MAX_FILE_BYTES: Final = 2**20
LOCK_S: Final = 5.0  # an edit takes milliseconds; on a network file system perhaps a second
RETRY_S: Final = 0.005

_turns = threading.Lock()


def read_object(path: Path) -> dict[str, Any]:
    """Return the object in a file; an empty one without a file.

    Raises:
        OSError: It cannot be read.
        StorageError: It is too large, or something else than an object.
    """
    try:
        with open(path, "rb", opener=open_own) as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return {}
    try:
        found = msgspec.json.decode(data[:MAX_FILE_BYTES])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise StorageError(f"Expected an object of JSON in {str(path)!r}: {error}. Mend or remove the file") from error
    if not isinstance(found, dict):
        raise StorageError(f"Expected an object of JSON in {str(path)!r}, got {found!r:.50}. Mend or remove the file")
    return found


def change_object(path: Path, change: Callable[[dict[str, Any]], Mapping[str, Any]]) -> None:
    """Replace the object in a file by what a function makes of it.

    Raises:
        StorageError: It cannot be written, or the file there is not JSON.
    """
    try:
        with _turns, _locked(lock_of(path)):
            data = msgspec.json.format(msgspec.json.encode(change(read_object(path))), indent=2)
            like = path if path.is_file() else None
            with written_aside(LOCAL, path, [data, b"\n"], sync=True, like=like) as aside:
                LOCAL.replace(aside, path)
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(f"Cannot write {str(path)!r}: {error.strerror or error}") from error


def lock_of(path: Path) -> Path:
    """Return the file whose lock a writer of a file holds."""
    return path.with_name(f".sightglass-{path.stem}.lock")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock; do without where there are no locks.

    Raises:
        OSError: The directory cannot be written to, or another process holds the lock for `LOCK_S`.
    """
    with contextlib.suppress(FileExistsError):
        LOCAL.create(path).close()
    held: File | None = None
    until_s = time.monotonic() + LOCK_S
    try:
        while (held := LOCAL.lock(path)) is None:
            if time.monotonic() > until_s:
                raise StorageError(f"Another process has held {str(path)!r} for {LOCK_S:g} s")
            time.sleep(RETRY_S)
    except StorageError:
        raise
    except OSError:
        held = None  # a file system without locks, or another user's file
    try:
        yield
    finally:
        if held is not None:
            held.close()


# What people write down about a run: `annotations.json` in its directory.
#
# Rule 1: the file is the people's. No training writes it, and nothing here touches `run.json`, a record, or the time at
# which a run last changed. A run that is renamed keeps its directory, its id, and the name by which a live one is
# found.
# Rule 2: an `Edit` names what it changes and nothing else, and is applied to what the file says then (`object_file`).
# Rule 3: an entry that cannot be read has its default, and entries of newer versions are kept.

ANNOTATIONS_NAME: Final = "annotations.json"
MAX_CACHED: Final = 100_000
MAX_LABELS: Final = 100

Name = Annotated[str, msgspec.Meta(max_length=200, pattern=r"\A[^\x00-\x1f\x7f]*\Z")]  # it stands in a line
Label = Annotated[str, msgspec.Meta(min_length=1, max_length=100, pattern=r"\A(?!\s)[^\x00-\x1f\x7f]+(?<!\s)\Z")]
Labels = Annotated[tuple[Label, ...], msgspec.Meta(max_length=MAX_LABELS)]
Notes = Annotated[str, msgspec.Meta(max_length=20_000)]


class Annotations(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What people wrote down about a run.

    Attributes:
        name: What it is called instead of the name that its program gave it, or empty.
        labels: Its labels, in the order in which they were added.
        notes: A text in Markdown.
        archived: Whether lists leave it out unless they are asked for it.
        baseline: Whether others are compared with it.
        deleted: When it was put into the trash, in seconds since the Unix epoch, or 0. Its files stay as they are.
    """

    name: Name = ""
    labels: Labels = ()
    notes: Notes = ""
    archived: bool = False
    baseline: bool = False
    deleted: float = 0.0


class Edit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change of a run's annotations; what is `None` stays as it is.

    Attributes:
        name: The new name; an empty one gives the run its own name again.
        labels: The new labels.
        add_labels: Labels to add.
        remove_labels: Labels to remove.
        notes: The new notes.
        archived: Whether to archive it.
        baseline: Whether to make it a baseline.
        deleted: Whether to put it into the trash, or to take it out again.
    """

    name: Name | None = None
    labels: Labels | None = None
    add_labels: Labels = ()
    remove_labels: Labels = ()
    notes: Notes | None = None
    archived: bool | None = None
    baseline: bool | None = None
    deleted: bool | None = None

    def applied(self, to: Annotations) -> Annotations:
        """Return annotations with this change."""
        labels = to.labels if self.labels is None else self.labels
        kept = [label for label in (*labels, *self.add_labels) if label not in self.remove_labels]
        return Annotations(
            name=to.name if self.name is None else self.name.strip(),
            labels=tuple(dict.fromkeys(kept)),
            notes=to.notes if self.notes is None else self.notes,
            archived=to.archived if self.archived is None else self.archived,
            baseline=to.baseline if self.baseline is None else self.baseline,
            deleted=to.deleted if self.deleted is None else (to.deleted or time.time()) if self.deleted else 0.0,
        )


def edit_of(**given: Any) -> Edit:
    """Return a change, as `Edit`.

    Raises:
        ValueError: An entry is unknown, too long, of another type, or no text that UTF-8 can encode.
    """
    try:
        for name in ("labels", "add_labels", "remove_labels"):
            if isinstance(given.get(name), str):
                raise ValueError(f"Expected a list of labels as {name}, got text: {name}=[{given[name]!r}]")
        made = msgspec.convert(given, Edit)
        msgspec.json.encode(made)
    except UnicodeEncodeError as error:
        raise ValueError(f"Expected text that UTF-8 can encode, got {error.object!r:.100}") from None
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    return made


def edit_annotations(directory: Path, change: Edit) -> Annotations:
    """Change the annotations of the run in a directory, and return what they are then.

    Raises:
        StorageError: They cannot be written, or the file there is not JSON.
        ValueError: There would be too many labels.
    """
    annotated = Annotations()

    def changed(found: dict[str, Any]) -> dict[str, Any]:
        nonlocal annotated
        annotated = change.applied(_of(found))
        if len(annotated.labels) > MAX_LABELS:
            raise ValueError(f"Expected at most {MAX_LABELS} labels, got {len(annotated.labels)}")
        others = {key: value for key, value in found.items() if key not in Annotations.__struct_fields__}
        entries: dict[str, Any] = msgspec.to_builtins(annotated)
        return entries | others

    change_object(directory / ANNOTATIONS_NAME, changed)
    return annotated


def read_annotations(directory: str | os.PathLike[str]) -> Annotations:
    """Return the annotations of the run in a directory; of a file that was read before and has not changed, at once."""
    path = os.path.join(directory, ANNOTATIONS_NAME)
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return Annotations()
    return _read(path, status.st_mtime_ns, status.st_size, status.st_ino)


@functools.lru_cache(MAX_CACHED)
def _read(path: str, _mtime_ns: int, _n_bytes: int, _inode: int) -> Annotations:
    try:
        return _of(read_object(Path(path)))
    except OSError:
        return Annotations()


def _of(found: dict[str, Any]) -> Annotations:
    """Return the entries that can be read."""
    with contextlib.suppress(msgspec.ValidationError):
        return msgspec.convert(found, Annotations)
    known: dict[str, Any] = {}
    for field in msgspec.structs.fields(Annotations):
        with contextlib.suppress(msgspec.ValidationError, KeyError):
            known[field.name] = msgspec.convert(found[field.name], field.type)
    return Annotations(**known)


# Saved views of a folder of runs: `views.json` beside them has addresses on the page by the names of the views.

VIEWS_NAME: Final = "views.json"
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
        for name, address in read_object(folder / VIEWS_NAME).items():
            if isinstance(address, str) and address.startswith("#/"):  # a link that leads elsewhere is no view
                found.setdefault(name, address)
    return dict(sorted(found.items(), key=lambda view: view[0].casefold()))


def view_address(folders: Sequence[Path], name: str) -> str:
    """Return the address of a view.

    Raises:
        UnknownNameError: There is no view of this name.
        OSError: A file cannot be read, or is not JSON.
    """
    views = read_views(folders)
    if name not in views:
        raise UnknownNameError("view", name, list(views))
    return views[name]


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
    having = [folder for folder in folders if name in read_object(folder / VIEWS_NAME)]
    if address is None and not having:
        raise UnknownNameError("view", name, list(read_views(folders)))

    def changed(found: dict[str, Any]) -> dict[str, Any]:
        others = {key: value for key, value in found.items() if key != name}
        if address is None:
            return others
        if len(others) >= MAX_VIEWS:
            raise ValueError(f"Expected at most {MAX_VIEWS} views, remove some first")
        return others | {name: address}

    change_object([*having, folders[0]][0] / VIEWS_NAME, changed)


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
    folder = next(folder for folder in folders if name in read_object(folder / VIEWS_NAME))

    def changed(found: dict[str, Any]) -> dict[str, Any]:
        if new in found:
            raise ValueError(f"There is a view {new!r} already: delete it first")
        return {new if key == name else key: address for key, address in found.items()}

    change_object(folder / VIEWS_NAME, changed)


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
