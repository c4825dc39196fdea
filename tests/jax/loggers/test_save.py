"""`SaveLogger`: types are kept, and nothing is overwritten by mistake."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sightglass as sg
from sightglass.core.errors import StorageError
from sightglass.jax import log
from sightglass.jax.loggers import SaveLogger

from .programs import losses, train


def saved(path, tag="loss"):
    with sg.open(path) as run:
        return [(record.step, record.value) for record in run.series(tag)]


def test_values_keep_their_types(tmp_path):
    def f(x):
        log({"half": jnp.bfloat16(x), "w": jnp.arange(6).reshape(2, 3), "key": jax.random.key(3), "ok": x > 0}, step=2)

    with SaveLogger(tmp_path / "a") as logger:
        logger.tap(f, logger.init())(1.5)
    with sg.open(tmp_path / "a") as run:
        values = {tag: run.series(tag)[0].value for tag in run.tags()}
    assert (str(values["half"].dtype), float(values["half"])) == ("bfloat16", 1.5)
    assert (values["w"].dtype, values["w"].tolist()) == (np.int32, [[0, 1, 2], [3, 4, 5]])
    assert values["key"].tolist() == [0, 3]
    assert values["ok"] == True  # noqa: E712


def test_a_run_is_complete(tmp_path):
    with SaveLogger(tmp_path / "a") as logger:
        logger.spool(train, logger.init())(1.0)
    with sg.open(tmp_path / "a") as run:
        assert (run.name, run.ended) == ("a", True)
        assert [record.steps for record in run.series("loss")] == [{"epoch": i} for i in range(3)]
    with SaveLogger(tmp_path / "b") as logger:
        jax.vmap(lambda seed: logger.spool(train, logger.init(seed))(1.0))(jnp.arange(2))
    assert sorted(sg.open(tmp_path / "b")) == ["0", "1"]


def test_existing_records_are_overwritten_only_on_request(tmp_path):
    place = tmp_path / "a"
    with SaveLogger(place) as logger:
        jax.vmap(lambda seed: logger.spool(train, logger.init(seed))(1.0))(jnp.arange(2))
    with pytest.raises(StorageError, match=r"a'.*SaveLogger\(path, overwrite=True\)"):
        SaveLogger(place)
    (place / "notes.txt").write_text("mine")
    logger = SaveLogger(place, overwrite=True)
    assert saved(place / "1") == losses(1.0), "nothing is removed before there is something new"
    with logger:
        logger.spool(train, logger.init(1))(5.0)
    assert saved(place / "1") == losses(5.0)
    assert not list((place / "0").iterdir()), "what is left of an earlier run would be taken for one of this"
    assert (place / "notes.txt").read_text() == "mine"


def test_an_empty_directory_will_do_and_a_file_will_not(tmp_path):
    (tmp_path / "empty").mkdir()
    SaveLogger(tmp_path / "empty").close()
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="directory"):
        SaveLogger(tmp_path / "file", overwrite=True)


def test_a_directory_that_cannot_be_created_is_reported_and_the_program_continues(tmp_path):
    logger = SaveLogger(tmp_path / "a")
    (tmp_path / "a").write_text("in the way")

    def run():
        assert float(logger.spool(train, logger.init())(1.0)) == 3.0
        logger.close()

    with (
        pytest.warns(RuntimeWarning, match=r"cannot be written|not all"),
        pytest.raises(StorageError, match="SaveLogger"),
    ):
        run()
