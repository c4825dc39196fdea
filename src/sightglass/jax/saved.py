"""`save` and `load`: a `logdict` in a file, in frames as those of record files, of values as the wire has them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import jax

from sightglass.core.codec import decode, encode
from sightglass.core.errors import DamagedError, StorageError, WireError
from sightglass.storage.file_system import LOCAL, written_aside
from sightglass.storage.format.framing import HEADER_BYTES, Frame, RandomAccessFile, frame, header, payload

from .logs.columns import EventColumns, read
from .logs.logdict import logdict
from .reducers.accumulator import BinCounts

KIND: Final = b"sightglass logdict 1"
HISTOGRAM: Final = "sightglass.histogram"


def save(path: str | os.PathLike[str], logs: logdict) -> None:
    """Write a logdict into a file, which it replaces; waits for the device.

    `load` returns it with its dtypes, steps, masks and nested values. As in `to_numpy`, PRNG keys become their data;
    dataclasses and other nodes of your own become mappings.

    Raises:
        StorageError: The file cannot be written.
        TypeError: A leaf is traced.
        UnsendableError: A nested value has keys that are neither text nor integers.

    Example:
        >>> import tempfile, sightglass.jax as sgx
        >>> file = tempfile.mktemp()
        >>> sgx.save(file, sgx.log({"net": {"loss": 0.5}}, step=3))
        >>> sgx.load(file)["net"]["loss"].tolist()
        [0.5]
    """

    def plain(node: Any) -> Any:
        return (
            {HISTOGRAM: [node.counts, node.outside, node.ends, node.bins, node.edges]}
            if isinstance(node, BinCounts)
            else node
        )

    data, *others = read(logs)._columns()
    data = {tag: jax.tree.map(plain, value, is_leaf=lambda x: isinstance(x, BinCounts)) for tag, value in data.items()}
    blob, buffers = encode((data, *others))
    parts = [part for content in (KIND, blob, *buffers) for part in frame([content])]
    try:
        with written_aside(LOCAL, Path(path), parts, sync=False) as aside:
            LOCAL.replace(aside, Path(path))
    except OSError as error:
        raise StorageError(f"Cannot write the logs to {str(path)!r}: {error}") from error


def load(path: str | os.PathLike[str]) -> logdict:
    """Return the logdict that `save` wrote, with NumPy arrays.

    Raises:
        DamagedError: The file is not as it was written.
        StorageError: It cannot be read, or is of another kind.
    """
    contents: list[Any] = []
    try:
        file, place = RandomAccessFile(Path(path)), 0
        while place < file.size() and (not contents or contents[0] == KIND):
            length = header(file.read(place, HEADER_BYTES))
            if length is None and contents:
                raise DamagedError(f"{path}, offset {place}: a header is damaged")
            contents.append(b"" if length is None else payload(file, Frame(place, length)))
            place = Frame(place, length or 0).end
        if contents[:1] != [KIND] or len(contents) < 2:
            raise StorageError(f"Expected a file that sgx.save() wrote, got {str(path)!r}")
        data, *others = decode(contents[1], contents[2:])
    except (OSError, WireError) as error:
        raise StorageError(f"Cannot read the logs in {str(path)!r}: {error}") from error

    def own(node: Any) -> Any:
        return BinCounts(*node[HISTOGRAM]) if _is_histogram(node) else node

    data = {tag: jax.tree.map(own, value, is_leaf=_is_histogram) for tag, value in data.items()}
    return logdict._of(EventColumns(data, *others))


def _is_histogram(node: object) -> bool:
    return isinstance(node, dict) and node.keys() == {HISTOGRAM}
