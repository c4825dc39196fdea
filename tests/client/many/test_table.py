"""The columns of tables of runs: one language, with the same values in Python, on the command line and on the page."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sightglass as sg
from sightglass.client.many.table import FACTS, REDUCERS, TableColumn, parse_column, parse_columns
from sightglass.core.errors import QueryError

names = st.text("abc/_", min_size=1, max_size=6)
reducers = st.sampled_from(REDUCERS)
QUERIES = (
    "batch.loss",
    "on('log').map(lambda e: e['a,b'])",
    'batch.loss.min(per="run")',
    "f(a, [b, (c, d)])",
    "a == b",
)


@given(names, reducers)
def test_a_tag_and_a_reducer(tag, reducer):
    assert parse_column(f"{tag}.{reducer}") == TableColumn(
        title=f"{tag}.{reducer}", written=f"{tag}.{reducer}", kind="series", text=tag, reducer=reducer
    )


@given(names, names, st.sampled_from(["min", "max"]))
def test_a_series_where_another_is_best(tag, at, reducer):
    found = parse_column(f"{tag}@{at}.{reducer}")
    assert (found.kind, found.text, found.at, found.reducer) == ("series", tag, at, reducer)


@given(names, st.sampled_from(QUERIES))
def test_a_query_with_a_name(name, query):
    found = parse_column(f"{name} = {query}")
    assert (found.title, found.written) == (name, query)


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_needs_no_name(query):
    found = parse_column(query)
    assert (found.title, found.kind, found.text) == (query, "query", query)


@given(st.lists(st.sampled_from([*QUERIES, "a/b.max", "x@y.min", "config.lr", "run.host"]), min_size=1, max_size=4))
def test_a_list_is_split_at_its_commas_only(written):
    named = [f"c{i}={one}" for i, one in enumerate(written)]
    assert [column.written for column in parse_columns(", ".join(named))] == written


@pytest.mark.parametrize("fact", FACTS)
def test_facts(fact):
    assert parse_column(f"run.{fact}").kind == "run"


def test_a_loss_of_an_event_called_run_is_a_query():
    assert parse_column("run.loss").kind == "query"


@pytest.mark.parametrize("written", ["", " ", "best="])
def test_nothing_is_not_a_column(written):
    with pytest.raises(QueryError, match="column"):
        parse_column(written)


def train(folder):
    """Record two runs with the same series."""
    for name, offset in (("a", 0.0), ("b", 10.0)):
        with sg.init(name, dir=folder, config={"lr": offset, "opt": {"name": "adam"}}) as run:
            for step, (loss, accuracy) in enumerate([(3.0, 0.5), (2.0, 0.9), (1.0, 0.7)]):
                run.log({"loss": loss + offset, "val/acc": accuracy}, step=10 * step)


COLUMNS = {
    "loss.min": [1.0, 11.0], "val/acc.last": [0.7, 0.7], "loss@val/acc.max": [2.0, 12.0], "loss.sum": [6.0, 36.0],
    "config.lr": [0.0, 10.0], "config.opt.name": ["adam", "adam"], "run.state": ["ended", "ended"],
}  # fmt: skip
"""Columns, with their values in the runs of `train`."""


def test_a_table_has_them(tmp_path):
    train(tmp_path)
    with sg.open(tmp_path) as runs:
        table = runs.table(*COLUMNS, best="loss@val/acc.max", odd="loss@none.max")
    rows = sorted(table, key=lambda row: row["run"])
    assert {name: [row[name] for row in rows] for name in COLUMNS} == COLUMNS
    assert [row["best"] for row in rows] == [2.0, 12.0]
    assert all(row["odd"] is None and "none" in row["problem"] for row in rows)


def test_a_fleet_has_configurations_and_facts():
    with sg.init("live", dir=None, config={"lr": 0.5}), sg.fleet("live") as fleet:
        (row,) = fleet.table("config.lr", "run.name", rate="config.lr", timeout_s=0.1)
        assert (row["config.lr"], row["run.name"], row["rate"]) == (0.5, "live", 0.5)
