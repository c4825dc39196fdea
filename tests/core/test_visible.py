"""What names cannot hide: controls and characters that change the direction of a text."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightglass.core.redact import visible

pytestmark = pytest.mark.smoke

BIDIRECTIONAL = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


@given(st.text())
def test_no_control_and_no_change_of_direction_is_left(text):
    shown = visible(text)
    assert not [c for c in shown if unicodedata.category(c) == "Cc" and c not in "\t\n\r"]
    assert not [c for c in shown if unicodedata.bidirectional(c) in BIDIRECTIONAL]
    assert "\r" not in shown.replace("\r\n", "")
    assert visible(shown) == shown


def test_what_is_seen_stays():
    for text in ("loss/train", "José", "名前", "שלום", "a\tb\r\nc", "👩\u200d🔬", ""):
        assert visible(text) == text
    assert visible("\x1b[2J\u202eevil\r\x9b") == r"\x1b[2J\u202eevil\r\x9b"
