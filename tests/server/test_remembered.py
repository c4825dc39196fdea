"""Answers that are computed once."""

from __future__ import annotations

from sightglass.server.runs.run_columns import Remembered


def test_the_answers_asked_for_last_are_remembered() -> None:
    computed = []

    def square(x: int) -> int:
        def compute() -> int:
            computed.append(x)
            return x * x

        return answers.get(x, compute)

    answers = Remembered[int](2)
    assert [square(x) for x in (1, 2, 1, 3, 1, 2)] == [1, 4, 1, 9, 1, 4]
    assert computed == [1, 2, 3, 2]
