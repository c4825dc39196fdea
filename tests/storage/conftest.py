"""Examples may take their time on a busy machine: what counts is what they find."""

from __future__ import annotations

collect_ignore = ["fuzz.py"]  # a program of its own
