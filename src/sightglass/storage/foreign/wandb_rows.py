"""Split the rows of Weights & Biases' logs into numbers, many at a time: most of a log is such rows.

Theory of operation
    * A history or summary record is a list of items, each a key and JSON. Keys come in any order, so rows have no fixed
      layout. All rows of a window are walked in step with each other: first the first item of each, then the second.
    * A row is taken only if it has the plainest form, and all its values are numbers. All others are left to be decoded
      one by one; no row is decoded differently here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from zlib import crc32

import msgspec
import numpy as np
import numpy.typing as npt

from sightglass.storage.format.protobuf import walk

from .event_scan import Indexes
from .wandb_log import BLOCK_BYTES, FIRST, FULL, HEADER_BYTES, LAST, LENGTH_AT, TYPE_AT, LogRecords
from .wandb_messages import OWN, Path

NUM_KEY, HISTORY_KEY, SUMMARY_KEY = 1 << 3, 2 << 3 | 2, 3 << 3 | 2
ITEM_KEY, STEP_KEY = 1 << 3 | 2, 2 << 3 | 2  # of a history; a summary has updates and removals
NAME_KEY, NESTED_KEY = 1 << 3 | 2, 2 << 3 | 2
JSON_KEY: Final = (0x82, 0x01)  # field 16, bytes
CONTROL_KEY, INFO_KEY = 0x82, 0xC2  # how fields 16 and 200 of a record begin, which may follow the message
PADDING: Final = bytes(64)  # what is read beyond the end of a message before its length is compared

MAX_EXACT: Final = 2.0**53  # of integers beyond it, some have the float of another one, such as this
NUMBER_STARTS: Final = np.isin(np.arange(256), np.frombuffer(b"-0123456789", np.uint8))
SPECIAL: Final = {b"NaN": math.nan, b"Infinity": math.inf, b"-Infinity": -math.inf, b"-0": -0.0}
SPECIAL_STARTS: Final = np.isin(np.arange(256), np.frombuffer(b"NI", np.uint8))

Bools = npt.NDArray[np.bool_]
Octets = npt.NDArray[np.uint8]


@dataclass(slots=True, kw_only=True)
class NumberRows:
    """The rows of a window that have numbers only.

    Attributes:
        others: Shape (n_records,): which records have to be decoded one by one.
        steps: Shape (n_records,): the step of each history record; -1 if it has none.
        records: Shape (n_items,): which record each item is in that has a number of a series, a step or a time.
        numbers: The number of its key, see `RowKeys`.
        values: Shape (n_items,), float64.
    """

    others: Bools
    steps: Indexes
    records: Indexes
    numbers: Indexes
    values: npt.NDArray[np.float64]


@dataclass(slots=True)
class Spans:
    """Messages: which record each is in, and where it begins and ends in the data."""

    records: Indexes
    begins: Indexes
    ends: Indexes

    def __getitem__(self, chosen: Any) -> Spans:
        return Spans(self.records[chosen], self.begins[chosen], self.ends[chosen])


def read_rows(batch: Batch, keys: RowKeys) -> NumberRows:
    """Split the rows of whole records; summaries that only repeat the history are neither rows nor others."""
    data = batch.data + PADDING
    octets = np.frombuffer(data, np.uint8)
    kinds, messages, asked = _messages(octets, batch.starts, batch.lengths)
    others: Bools = (kinds != HISTORY_KEY) & (kinds != SUMMARY_KEY)
    others |= (kinds == SUMMARY_KEY) & (asked | ~_repeats(octets, messages))
    steps = np.full(len(kinds), -1)
    items = _items(octets, messages[kinds == HISTORY_KEY], others, steps)
    items, key_ends, json_begins = _named(octets, items, others)
    numbers = keys.find(data, items.begins, key_ends)
    others[items.records[numbers == OTHER]] = True
    read = np.flatnonzero((numbers >= 0) | (numbers == TIME) | ((numbers == STEP) & (steps[items.records] < 0)))
    items, begins, numbers = items[read], json_begins[read], numbers[read]
    texts = [data[a:b] for a, b in zip(begins.tolist(), items.ends.tolist(), strict=True)]
    values = _numbers(texts, items.records, others, octets[begins])
    kept = ~others[items.records]
    return NumberRows(
        others=others, steps=steps, records=items.records[kept], numbers=numbers[kept], values=values[kept]
    )


def _messages(octets: Octets, starts: Indexes, lengths: Indexes) -> tuple[Octets, Spans, Bools]:
    """Return the message that each record is about, its key, 0 of odd records, and whether the program asked for it.

    What the program asked for has the field `_info`; what W&B adds has not.
    """
    ends = starts + lengths
    _, places = _varints(octets, starts + 1)
    places = np.where(octets[starts] == NUM_KEY, places, starts)
    kinds = octets[np.minimum(places, ends)].copy()
    sizes, begins = _varints(octets, np.minimum(places + 1, ends))
    after = begins + sizes
    whole = (sizes > 0) & (after <= ends)
    following = octets[np.where(whole, after, 0)]
    alone = after == ends
    kinds[~(whole & (alone | (following == CONTROL_KEY) | (following == INFO_KEY)))] = 0
    return kinds, Spans(np.arange(len(starts)), begins, after), ~alone


def _repeats(octets: Octets, summaries: Spans) -> Bools:
    """Return which summaries begin with a nested key: W&B makes these of rows, and adds its own."""
    places = np.minimum(summaries.begins, len(octets) - len(PADDING))
    sizes, begins = _varints(octets, places + 1)
    repeats: Bools = (octets[places] == ITEM_KEY) & (sizes > 0) & (begins < summaries.ends)
    repeats[repeats] = octets[begins[repeats]] == NESTED_KEY
    return repeats


def _varints(octets: Octets, places: Indexes) -> tuple[Indexes, Indexes]:
    """Return numbers of up to 28 bits, -1 for longer ones, and the places after them."""
    byte = octets[places].astype(np.int64)
    values, more, after = byte & 127, byte > 127, places + 1
    for shift in (7, 14, 21):
        if not more.any():
            return values, after
        byte = np.where(more, octets[np.minimum(after, len(octets) - 1)], 0).astype(np.int64)
        values |= (byte & 127) << shift
        after = after + more
        more = byte > 127
    values[more] = -1
    return values, after


def _items(octets: Octets, rows: Spans, others: Bools, steps: Indexes) -> Spans:
    """Return the items of history records, and note the steps."""
    none = np.empty(0, np.int64)
    found = [Spans(none, none, none)]
    others[rows.records[rows.begins >= rows.ends]] = True
    rows = rows[rows.begins < rows.ends]
    while len(rows.records):
        keys = octets[rows.begins]
        sizes, begins = _varints(octets, rows.begins + 1)
        after = begins + sizes
        bad = (sizes < 0) | (after > rows.ends) | ((keys != ITEM_KEY) & (keys != STEP_KEY))
        others[rows.records[bad]] = True
        found.append(Spans(rows.records, begins, after)[~bad & (keys == ITEM_KEY)])
        _note_steps(octets, Spans(rows.records, begins, after)[~bad & (keys == STEP_KEY)], others, steps)
        going = ~bad & (after < rows.ends)
        rows = Spans(rows.records[going], after[going], rows.ends[going])
    columns = zip(*((one.records, one.begins, one.ends) for one in found), strict=True)
    return Spans(*(np.concatenate(column) for column in columns))


def _note_steps(octets: Octets, found: Spans, others: Bools, steps: Indexes) -> None:
    if len(found.records):
        numbers, after = _varints(octets, found.begins + 1)
        empty = found.begins == found.ends
        right = (octets[found.begins] == NUM_KEY) & (after == found.ends) & (numbers >= 0)
        steps[found.records] = np.where(empty, 0, numbers)
        others[found.records[~(empty | right)]] = True


def _named(octets: Octets, items: Spans, others: Bools) -> tuple[Spans, Indexes, Indexes]:
    """Return the items that have a key and JSON, and where the keys end and the JSON begins."""
    places = items.begins.copy()
    left = np.arange(len(places))
    key_ends, json_begins = np.zeros_like(places), np.full_like(places, -1)
    while len(left):
        at = places[left]
        byte, size = octets[at], octets[at + 1].astype(np.int64)
        is_json = (byte == JSON_KEY[0]) & (size == JSON_KEY[1])
        done = left[is_json]
        sizes, begins = _varints(octets, places[done] + 2)
        whole = (sizes > 0) & (begins + sizes == items.ends[done]) & (places[done] > items.begins[done])
        key_ends[done] = places[done]
        json_begins[done[whole]] = begins[whole]
        names = ~is_json & ((byte == NAME_KEY) | (byte == NESTED_KEY))
        names &= (size < 128) & (at + 2 + size < items.ends[left])
        places[left] += 2 + size
        left = left[names]
    kept = json_begins >= 0
    others[items.records[~kept]] = True
    return items[kept], key_ends[kept], json_begins[kept]


def _numbers(texts: list[bytes], records: Indexes, others: Bools, starts: Octets) -> npt.NDArray[np.float64]:
    """Decode numbers, and mark the records with other values."""
    others[records[~(NUMBER_STARTS[starts] | SPECIAL_STARTS[starts])]] = True
    special: dict[int, float] = {}
    for i in np.flatnonzero(~NUMBER_STARTS[starts] | (starts == ord("-"))).tolist():
        if (number := SPECIAL.get(texts[i])) is not None:
            special[i] = number
            texts[i] = b"0"
        elif not NUMBER_STARTS[starts[i]]:
            others[records[i]] = True
            texts[i] = b"0"
    values: npt.NDArray[np.float64]
    try:
        values = np.array(msgspec.json.decode(b"[" + b",".join(texts) + b"]", type=list[float]), np.float64)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        values = np.empty(0)
    if len(values) != len(texts):  # one text is not one number
        others[records] = True
        return np.zeros(len(texts))
    values[list(special)] = list(special.values())
    for i in np.flatnonzero(np.abs(values) >= MAX_EXACT).tolist():
        if texts[i].lstrip(b"-").isdigit():
            others[records[i]] = True
    return values


# The whole blocks of a Weights & Biases log, many at once: what most of a large file is read with.
#
# Every block begins with the header of a chunk, so all blocks of a window are walked in step with each other.
# Anything odd is left to `wandb_log.LogScan`, which reads chunk by chunk.


@dataclass(slots=True)
class Batch:
    """Whole records of a log.

    Attributes:
        data: Bytes that hold them.
        offsets: Where each begins in the file.
        starts: Where each begins in the data.
        lengths: How long each is, in bytes.
    """

    data: bytes
    offsets: Indexes
    starts: Indexes
    lengths: Indexes

    @classmethod
    def of(cls, records: LogRecords) -> Batch:
        """Return records that were found one by one."""
        columns = (np.array(column, np.int64) for column in (records.offsets, records.starts, records.lengths))
        return cls(records.data, *columns)

    def payload(self, i: int) -> memoryview:
        """Return the bytes of a record."""
        start = int(self.starts[i])
        return memoryview(self.data)[start : start + int(self.lengths[i])]


def read_blocks(window: bytes, base: int) -> tuple[Batch, int] | None:
    """Return the records in the whole blocks of a window, and where in the file to go on.

    Args:
        window: Bytes of the file.
        base: Where they begin in the file: with a chunk that does not continue a record.

    Returns:
        `None` if they hold no record, or anything but right chunks.
    """
    places = _places(window, base)
    if places is None or not len(places):
        return None
    lengths = np.ndarray(len(window) - 1, "<u2", window, strides=(1,))[places + LENGTH_AT].astype(np.int64)
    crcs = np.ndarray(len(window) - 3, "<u4", window, strides=(1,))[places]
    ends = places + HEADER_BYTES + lengths
    found = [crc32(window[a:b]) for a, b in zip((places + TYPE_AT).tolist(), ends.tolist(), strict=True)]
    if (crcs != np.array(found, np.uint32)).any():
        return None
    kinds = np.frombuffer(window, np.uint8)[places + TYPE_AT]
    if (kinds < FULL).any() or (kinds > LAST).any():
        return None
    firsts, lasts = np.flatnonzero(kinds <= FIRST), np.flatnonzero((kinds == FULL) | (kinds == LAST))
    n = len(lasts)
    if not n or len(firsts) - n not in (0, 1) or (kinds[firsts[:n]] == FULL).tolist() != (firsts[:n] == lasts).tolist():
        return None
    if firsts[0] != 0 or (firsts[1:] != lasts[: len(firsts) - 1] + 1).any():
        return None  # a record without its beginning, or its end
    starts, sizes, parts, n_bytes = places[firsts[:n]] + HEADER_BYTES, lengths[firsts[:n]], [window], len(window)
    for i in np.flatnonzero(firsts[:n] != lasts).tolist():
        chunks = range(firsts[i], lasts[i] + 1)
        several = [window[places[j] + HEADER_BYTES : ends[j]] for j in chunks]
        starts[i], sizes[i] = n_bytes, sum(map(len, several))
        parts += several
        n_bytes += int(sizes[i])
    end = places[firsts[n]] if len(firsts) > n else len(window) - (base + len(window)) % BLOCK_BYTES
    return Batch(b"".join(parts), base + places[firsts[:n]], starts, sizes), base + int(end)


def _places(window: bytes, base: int) -> Indexes | None:
    """Return where the chunks of whole blocks begin, in order; `None` if a chunk leads out of its block."""
    lengths = np.ndarray(len(window) - 1, "<u2", window, strides=(1,))
    ends = np.arange(BLOCK_BYTES - base % BLOCK_BYTES, len(window) + 1, BLOCK_BYTES)
    places = np.concatenate([np.zeros(1, np.int64), ends[:-1]])[: len(ends)]
    lasts = ends - HEADER_BYTES
    found = [places[:0]]
    while len(places):
        going = places <= lasts
        if not going.all():
            if (places > lasts + HEADER_BYTES).any():
                return None
            places, lasts = places[going], lasts[going]
        found.append(places)
        places = places + lengths[places + LENGTH_AT] + HEADER_BYTES
    return np.sort(np.concatenate(found))


# The keys of Weights & Biases' rows as numbers, found for many items at once.
#
# A key is compared as its bytes: up to four words of 64 bits, by their hash and then one by one. Longer keys, and those
# that are seen for the first time, are looked up in a dictionary.

N_WORDS: Final = 4  # keys of up to 28 characters, beyond which few are
MASKS: Final = np.array([2 ** (8 * n) - 1 for n in range(8)] + [2**64 - 1], np.uint64)
FACTORS: Final = np.random.default_rng(0).integers(0, 2**63, N_WORDS, np.uint64) * np.uint64(2) + np.uint64(1)

OTHER, IGNORED, STEP, TIME = -1, -2, -3, -4
"""The numbers of keys that name no series: of values with a type of W&B's own, of what W&B adds, of step and time."""
ROLES: Final = {"_step": STEP, "_timestamp": TIME}

Words = npt.NDArray[np.uint64]


class RowKeys:
    """Numbers keys as they come.

    Attributes:
        paths: The paths of keys, by their numbers.
        flat: The keys of rows in files of older versions of W&B, which do not nest.
    """

    def __init__(self) -> None:
        """Start without keys."""
        self.paths: list[Path] = []
        self.flat: set[str] = set()
        self._numbers: dict[bytes, int] = {}
        self._table: Words = np.empty((0, N_WORDS), np.uint64)
        self._hashes: Words = np.empty(0, np.uint64)
        self._by_hash: Indexes = np.empty(0, np.int64)

    def find(self, data: bytes, begins: Indexes, ends: Indexes) -> Indexes:
        """Return the number of each key; `data` has at least 32 bytes after the beginning of each."""
        words = _words(data, begins, ends)
        hashes = words @ FACTORS
        numbers = np.zeros(len(begins), np.int64)
        new = np.ones(len(begins), bool)
        if len(self._hashes):
            places = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
            new = (self._table[places] != words).any(axis=1) | (ends - begins > 8 * N_WORDS)
            numbers = self._by_hash[places]
        left = np.flatnonzero(new)
        if len(left):
            keys = [data[a:b] for a, b in zip(begins[left].tolist(), ends[left].tolist(), strict=True)]
            numbers[left] = [self._numbers[key] if key in self._numbers else self._learn(key) for key in keys]
            self._tabulate()
        return numbers

    def _learn(self, key: bytes) -> int:
        """Give a number to the bytes of a key."""
        names = [(number, bytes(name).decode("utf-8", "replace")) for number, _, name in _fields(key)]
        path = tuple(name for _, name in names)
        if names[0][0] == 1:
            self.flat.add(path[0])
        if path[-1] == "_type":
            number = OTHER
        elif path[0] in OWN:
            number = ROLES.get(path[0], IGNORED) if len(path) == 1 else IGNORED
        else:
            number = len(self.paths)
            self.paths.append(path)
        return self._numbers.setdefault(key, number)

    def _tabulate(self) -> None:
        """Sort the short keys by their hashes."""
        short = [key for key in self._numbers if len(key) <= 8 * N_WORDS]
        data = b"".join(key.ljust(8 * N_WORDS, b"\0") for key in short)
        words = np.frombuffer(data, "<u8").reshape(-1, N_WORDS)
        order = np.argsort(words @ FACTORS)
        self._table, self._hashes = words[order], (words @ FACTORS)[order]
        self._by_hash = np.array([self._numbers[key] for key in short], np.int64)[order]


def _words(data: bytes, begins: Indexes, ends: Indexes) -> Words:
    """Return the first bytes of each key as words, with zeros after its end."""
    every = np.ndarray(len(data) - 7, "<u8", data, strides=(1,))
    words = np.zeros((len(begins), N_WORDS), np.uint64)
    sizes = ends - begins
    for i in range(min(N_WORDS, -(-int(sizes.max(initial=0)) // 8))):
        words[:, i] = every[begins + 8 * i] & MASKS[np.clip(sizes - 8 * i, 0, 8)]
    return words


def _fields(message: bytes) -> Iterator[tuple[int, int, Any]]:
    return walk(memoryview(message))
