"""Examples may take their time on a busy machine: what counts is what they find."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

collect_ignore = ["fuzz.py"]  # a program of its own
