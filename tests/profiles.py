"""How many examples Hypothesis tries for a test that says 100.

`--hypothesis-profile=` takes `ci`, the default (25), `dev` (10) of `make quick`, or `release` (300) of `make laws`.
`ci` tries the same examples each time, so that a commit passes or fails each time; `make laws` looks for new ones.
"""

from __future__ import annotations

from hypothesis import settings

# Examples may take their time on a busy machine: what counts is what they find.
for _name, _n in {"dev": 10, "ci": 25, "release": 300}.items():
    settings.register_profile(_name, deadline=None, max_examples=_n, derandomize=_name == "ci")
settings.load_profile("ci")


def examples(n: int) -> int:
    """Return how many of `n` examples the loaded profile tries."""
    return max(1, n * settings().max_examples // 100)
