"""Answers that fit the context of an agent: cut between rows, and saying what was left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sightglass.views.encoding import encode_json

MAX_BYTES: Final = 8_000
MAX_TEXT: Final = 300  # of one text that a run wrote


def fit(
    answer: dict[str, Any], *lists: str, how: str = "", head: Callable[[int], dict[str, Any]] = lambda n: {}
) -> str:
    """Return an answer as JSON of at most `MAX_BYTES`, without the last items of its longest lists if need be.

    Args:
        answer: The answer.
        lists: The names of the lists, inside `data`, that may lose items.
        how: How to get what was left out.
        head: Returns what the answer says of its first list, given how many items are left of it.
    """
    data = answer.get("data", {})
    whole = {name: data[name] for name in lists if isinstance(data.get(name), list)}
    left = {name: len(items) for name, items in whole.items()}
    answer |= head(left.get(lists[0], 0)) if lists else {}
    while len(text := encode_json(_shortened(answer))) > MAX_BYTES and any(left.values()):
        name = max(left, key=lambda name: len(encode_json(data[name])))
        left[name] = left[name] * 3 // 4
        data[name] = whole[name][: left[name]]
        short = [f"{left[name]:,} of {len(whole[name]):,} {name}" for name in whole if left[name] < len(whole[name])]
        answer |= {"left_out": f"{'; '.join(short)}. {how}".strip(), **head(left.get(lists[0], 0))}
    if len(text) > MAX_BYTES:
        text = encode_json(
            {"error": f"The answer has {len(text):,} bytes, and the limit is {MAX_BYTES:,}. {how}".strip()}
        )
    return text.decode()


def _shortened(value: Any) -> Any:
    """Return a value with its long texts cut."""
    match value:
        case str() if len(value) > MAX_TEXT:
            return f"{value[:MAX_TEXT]}… ({len(value):,} characters)"
        case dict():
            return {_shortened(key): _shortened(item) for key, item in value.items()}
        case list() | tuple():
            return [_shortened(item) for item in value]
    return value
