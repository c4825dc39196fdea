"""Tests are steady: see `steady`."""

from __future__ import annotations

import pytest
from tests.meta import steady

pytestmark = pytest.mark.smoke


def test_no_test_depends_on_a_time_waits_by_itself_or_pauses_at_random() -> None:
    assert steady.found() == []


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("began_s = time.monotonic()\nf()\nassert time.monotonic() - began_s < 30", steady.DURATION),
        ("a = perf_counter()\nf()\ntook_s = perf_counter() - a\nassert took_s < 1", steady.DURATION),
        ("x, a = f(), perf_counter()\nlasted_s = perf_counter() - a\nassert 1 < lasted_s", steady.DURATION),
        ("end_s = time.monotonic() + 60\nwhile not f() and time.monotonic() < end_s:\n    step()", steady.DURATION),
        ("self.began_s = time.monotonic()\nassert now_s() - self.began_s < 3", steady.DURATION),
        ("while not f():\n    time.sleep(0.01)", steady.WAIT),
        ("while not f():\n    assert alive\n    page.wait_for_timeout(30)", steady.WAIT),
        ("while True:\n    if f():\n        break\n    sleep(1)", steady.WAIT),
        ("time.sleep(random.uniform(0, 0.1))", steady.PAUSE),
        ("time.sleep(0.1 * rng.random())", steady.PAUSE),
        ('CHILD = """\nimport time\nwhile not f():\n    time.sleep(0.1)\n"""', steady.WAIT),
        ('child = f"""\nx = {x}\nwhile not f():\n    time.sleep(0.1)\n"""', steady.WAIT),
    ],
)  # fmt: skip
def test_an_unsteady_program_would_be_found(program: str, why: str) -> None:
    assert any(place.endswith(why) for place in steady.places(program))


@pytest.mark.parametrize(
    "program",
    [
        "while not run.stopping:\n    run.observe('batch')\n    time.sleep(0.001)",
        "assert clock.monotonic() < 3",
        "run.observe('batch', at=time.time())",
        "wait_until(lambda: run.closed)",
        "while queue:\n    queue.pop()",
    ],
)
def test_a_steady_program_passes(program: str) -> None:
    assert steady.places(program) == []


def test_the_line_of_a_program_in_a_string_is_that_of_the_file() -> None:
    assert steady.places('x = 1\nCHILD = """\nwhile True:\n    sleep(1)\n"""') == [f"3: {steady.WAIT}"]
