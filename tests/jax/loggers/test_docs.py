"""The page about loggers names everything that is public, and every option."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from sightglass.jax import loggers

PAGE = (Path(__file__).parents[3] / "docs" / "loggers.md").read_text()
PUBLIC = [name for name, value in vars(loggers).items() if inspect.isclass(value)]


def test_there_are_public_names():
    assert {"Logger", "LoggerState", "ConsoleLogger", "SaveLogger", "WandBLogger", "RunLogger", "MultiLogger"} < {
        *PUBLIC
    }


@pytest.mark.parametrize("name", PUBLIC)
def test_every_name_is_documented(name):
    assert f"loggers.{name}" in PAGE
    assert inspect.getdoc(getattr(loggers, name))


@pytest.mark.parametrize("method", ["tap", "spool", "log"])
def test_every_option_is_documented(method):
    row = next(line for line in PAGE.split("\n") if line.startswith(f"| `logger.{method}("))
    for name, parameter in inspect.signature(getattr(loggers.Logger, method)).parameters.items():
        default = parameter.default
        shown = name if default is parameter.empty else f"{name}={default!r}".replace("'", '"')
        assert name == "self" or shown in row


def test_every_counter_is_documented():
    for name in ("n_events", "n_waiting", "n_dropped", "last_error"):
        assert f"`{name}`" in PAGE
