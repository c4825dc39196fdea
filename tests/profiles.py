"""How many examples Hypothesis tries: `ci`, the default, all of them; `dev` (`--hypothesis-profile=dev`) a fifth."""

from __future__ import annotations

from hypothesis import settings

# Examples may take their time on a busy machine: what counts is what they find.
settings.register_profile("ci", deadline=None, max_examples=100)
settings.register_profile("dev", deadline=None, max_examples=20)
settings.load_profile("ci")


def examples(n: int) -> int:
    """Return how many of `n` examples the loaded profile tries."""
    return max(1, n * settings().max_examples // 100)
