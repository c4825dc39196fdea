"""What people write down about a run: `annotations.json` in its directory.

Rule 1: the file is the people's. No training writes it, and nothing here touches `run.json`, a record, or the time at
which a run last changed. A run that is renamed keeps its directory, its id, and the name by which a live one is found.
Rule 2: an `Edit` names what it changes and nothing else, and is applied to what the file says then (`object_file`).
Rule 3: an entry that cannot be read has its default, and entries of newer versions are kept.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from .object_file import change_object, read_object

NAME: Final = "annotations.json"
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


def edit(directory: Path, change: Edit) -> Annotations:
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

    change_object(directory / NAME, changed)
    return annotated


def read(directory: str | os.PathLike[str]) -> Annotations:
    """Return the annotations of the run in a directory; of a file that was read before and has not changed, at once."""
    path = os.path.join(directory, NAME)
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
