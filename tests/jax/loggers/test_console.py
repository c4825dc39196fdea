"""`ConsoleLogger`: a table with sparklines in a terminal, lines of text elsewhere."""

from __future__ import annotations

import io
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from sightglass.core.columns import Record
from sightglass.core.values import Histogram
from sightglass.jax import log
from sightglass.jax.loggers import ConsoleLogger
from sightglass.jax.loggers.console import ASCII_BLOCKS, BLOCKS, ConsoleTable, brief, sparkline

from .programs import train


def printed(board, height=20, width=100):
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(board.draw(height=height))
    return [line.rstrip() for line in console.file.getvalue().rstrip().split("\n")]


def record(tag, value, step=0, **steps):
    return Record(tag=tag, index=0, step=step, wall_time=0.0, value=value, steps=steps)


def test_events_are_lines_where_there_is_no_terminal(capsys):
    def f(x):
        log({"w": jnp.arange(3.0), "[bold]x": x}, step=4, epoch=1)
        return train(x)

    with ConsoleLogger() as logger:
        logger.tap(f, logger.init(5))(0.5)
    assert capsys.readouterr().out.splitlines() == [
        "[5] step 4  epoch 1  w float32[3] 0 … 2  [bold]x 0.5",
        "[5] step 0  epoch 0  loss 0.5",
        "[5] step 10  epoch 1  loss 1",
        "[5] step 20  epoch 2  loss 1.5",
    ]


@pytest.mark.parametrize("way", ["tap", "spool"])
def test_in_a_terminal_the_last_table_stays(way):
    console = Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None, legacy_windows=False)
    with ConsoleLogger(console) as logger:
        jax.vmap(lambda seed, x: getattr(logger, way)(train, logger.init(seed))(x))(
            jnp.arange(2), jnp.array([1.0, 2.0])
        )
    text = re.sub(r"\x1b\[[?\d;]*\w|\r", "", console.file.getvalue())
    rows = [line.split() for line in text[text.rindex("lane") :].rstrip().split("\n")]
    assert rows == [
        ["lane", "tag", "value", "at"],
        ["0", "loss", "3", "step", "20,", "epoch", "2", "▁▅█"],
        ["1", "loss", "6", "step", "20,", "epoch", "2", "▁▅█"],
    ]


def test_the_table_shows_the_latest_of_each_tag():
    board = ConsoleTable(unicode=True)
    board.put("", [record("a", value, step=value) for value in range(100)])
    board.put("", [record("h", Histogram(np.arange(5))), record("z", np.complex64(1j), epoch=2)])
    head, a, h, z = printed(board)
    assert head.split() == ["tag", "value", "at"]
    assert a.split()[:4] == ["a", "99", "step", "99"]
    assert a.split()[4] == sparkline(range(68, 100))
    assert h.split() == ["h", "5", "values", "step", "0"]
    assert z.split() == ["z", "0+1j", "step", "0,", "epoch", "2"]
    assert board.pull()
    assert not board.pull()


def test_logs_that_do_not_fit_are_counted():
    board = ConsoleTable(unicode=False)
    board.put("", [record(f"t{i}", i) for i in range(10)])
    rows = printed(board, height=6)
    assert len(rows) == 6
    assert rows[-1] == "and 6 more"


@given(st.lists(st.floats(width=32), max_size=40))
def test_sparklines_have_a_block_for_each_number(numbers):
    line = sparkline(numbers)
    assert len(line) == len(numbers)
    assert all((block == " ") == (not math.isfinite(number)) for block, number in zip(line, numbers, strict=True))
    assert set(sparkline(numbers, ASCII_BLOCKS)) <= {*ASCII_BLOCKS, " "}
    finite = [(number, block) for number, block in zip(numbers, line, strict=True) if block != " "]
    assert [BLOCKS.index(block) for _, block in sorted(finite)] == sorted(BLOCKS.index(block) for _, block in finite)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "True"),
        (np.bool_(False), "False"),
        (12_345_678, "12345678"),
        (1 / 3, "0.3333"),
        (float("nan"), "nan"),
        (np.float32(0.1), "0.1"),
        (jnp.bfloat16(1.5), "1.5"),
        ("text", "text"),
        ((1.5, np.int32(2)), "(1.5, 2)"),
        (np.zeros((2, 2)), "float64[2, 2] 0"),
        (None, "NoneType"),
    ],
)
def test_values_are_short(value, text):
    assert brief(np.asarray(value)[()] if hasattr(value, "devices") else value) == text
