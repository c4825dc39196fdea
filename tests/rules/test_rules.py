"""Files of rules: what they say, and what is wrong with them."""

from __future__ import annotations

import pytest

from sightglass.core.errors import AlertError
from sightglass.rules.rules import STATES, read_rules

FULL = """
[[rule]]
name = "the loss explodes"
when = "batch.loss.mean(every=10) > 10"
runs = "sweep-*"
for = "5 min"
wait = "1 h"
level = "error"
then = "lr=0.001"
"""


@pytest.fixture
def read(tmp_path):
    def read_text(text):
        (tmp_path / "rules.toml").write_text(text)
        return read_rules(tmp_path / "rules.toml")

    return read_text


def test_a_rule_has_what_is_written(read):
    *_, rule = read(FULL)
    assert (rule.name, rule.runs, rule.for_s, rule.wait_s, rule.level) == (
        "the loss explodes", "sweep-*", 300, 3600, "error",
    )  # fmt: skip
    assert rule.then == ("set", "lr", 0.001)
    assert rule.when == "batch.loss.mean(every=10) > 10"
    assert not rule.momentary


@pytest.mark.parametrize(
    ("then", "command"),
    [
        ("stop", ("stop", "", None)),
        ("pause", ("pause", "", None)),
        ("mode=slow", ("set", "mode", "slow")),
        ("x=.5", ("set", "x", 0.5)),
        ("on=True", ("set", "on", True)),
        ("", None),
    ],
)  # fmt: skip
def test_what_follows_is_a_command(read, then, command):
    assert read(f'[[rule]]\nname = "r"\nwhen = "b.x > 1"\nthen = "{then}"')[-1].then == command


def test_the_states_of_all_runs_are_rules_by_default(read):
    assert [rule.name for rule in read("")] == [*STATES]
    assert [rule.name for rule in read('states = ["stuck"]')] == ["stuck"]
    assert read("states = []") == []


def test_what_ends_in_where_is_momentary(read):
    assert read('[[rule]]\nname = "r"\nwhen = "b.x.where(lambda x: x > 1)"')[-1].momentary


def test_the_key_changes_with_the_text_alone(read):
    one, other, longer = (read(text)[-1].key for text in (FULL, f"# a comment{FULL}", FULL.replace("5 min", "6 min")))
    assert one == other != longer


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (FULL.replace("when", "wen"), "wen"),
        (FULL.replace('"5 min"', "5"), "for"),
        (FULL.replace("5 min", "5 moons"), "5 moons"),
        (FULL.replace("batch.loss.mean(every=10) > 10", "batch.loss >"), "the loss explodes"),
        (FULL.replace('"error"', '"urgent"'), "urgent"),
        (FULL.replace("lr=0.001", "halt"), "halt"),
        (FULL + FULL, "the loss explodes"),
        (FULL.replace("> 10", ".where(lambda x: x > 10)"), "where"),
        (FULL.replace("the loss explodes", "stuck"), "stuck"),
        ('states = ["dead"]', "dead"),
        ("[[rule]", "rules.toml"),
        ('[[rule]]\nname = "r"', "when"),
        ("\n".join(f'[[rule]]\nname = "{i}"\nwhen = "b.x > 1"' for i in range(101)), "101"),
    ],
)
def test_what_is_wrong_is_named(read, text, named):
    with pytest.raises(AlertError, match=named):
        read(text)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(AlertError, match="nothing"):
        read_rules(tmp_path / "nothing.toml")
