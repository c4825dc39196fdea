"""The API under generated requests: every reply is documented, and none is a 5xx."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.profiles import examples

from sightglass.server.app import ROUTES

from .conftest import place_foreign, record

schemathesis = pytest.importorskip("schemathesis")

TAGS = ["batch.loss", "kernel", "activations", "digits", "note", "figure", "holes", "point", "val/accuracy"]
CHECKS = ("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance")


def operations(page):
    document = page.json("/openapi.json")
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=page.base)
    return [result.ok() for result in schema.get_all_operations()]


def test_no_request_is_too_much_for_the_server(page, begin):
    from schemathesis.checks import CHECKS as every
    from schemathesis.checks import load_all_checks

    load_all_checks()

    record()
    place_foreign()
    live = begin("alive", record=["batch.loss"])
    live.control("lr", 0.1)
    live.observe("batch", loss=1.0)
    keys = [run["key"] for run in page.json("/runs")["runs"]]
    checks = [every.get_one(name) for name in CHECKS]
    asked = 0
    for operation in operations(page):
        commands = operation.path.endswith("/commands")  # each of which would wait for an event
        headers = page.headers("viewer" if commands else "controller")

        @settings(
            max_examples=examples(8 if commands else 25),
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
        )
        @given(case=operation.as_strategy(), key=st.sampled_from(keys), tag=st.sampled_from(TAGS), real=st.booleans())
        def attack(case, key, tag, real):
            nonlocal asked
            asked += 1
            if real and "key" in (case.path_parameters or {}):
                case.path_parameters["key"] = key
            if real and isinstance(case.query, dict) and "tag" in case.query:
                case.query["tag"] = tag
            if isinstance(case.body, dict) and "query" in case.body and real:
                case.body["query"] = "batch.loss"
            live.observe("batch", loss=1.0)
            case.call_and_validate(headers=headers, checks=checks)  # noqa: B023  called in this turn only

        attack()
    assert asked > examples(15) * len(ROUTES)
    assert page.get("/session").status_code == 200
