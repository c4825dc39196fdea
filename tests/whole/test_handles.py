"""What stands for a run, inside objects of users: copied, it is the same one; in another process it does nothing."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import cloudpickle
import joblib
import pytest
from tests.training.trainer_object import Trainer, of_another_process

import sightglass as sg


@pytest.fixture
def trainer(tmp_path):
    with sg.init("job", dir=tmp_path, config={"lr": 0.5, "token": "hidden"}) as run:
        yield Trainer(run)


def by_joblib(value: object, folder: Any) -> Any:
    joblib.dump(value, folder / "value.joblib")
    return joblib.load(folder / "value.joblib")


COPIES: dict[str, Callable[[Any, Any], Any]] = {
    "copy": lambda value, folder: copy.copy(value),
    "deepcopy": lambda value, folder: copy.deepcopy(value),
    "pickle": lambda value, folder: pickle.loads(pickle.dumps(value)),
    "cloudpickle": lambda value, folder: pickle.loads(cloudpickle.dumps(value)),
    "joblib": by_joblib,
}


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_in_this_process_is_the_same_run(trainer, tmp_path, how):
    other = COPIES[how](trainer, tmp_path)
    assert other is not trainer
    assert other.run is trainer.run
    assert other.lr is trainer.lr
    assert other.decay is trainer.decay
    other.run.log({"x": 1.0})
    trainer.run.flush()
    assert sg.open(trainer.run.directory).series("x").n == 1


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_in_another_process_it_knows_the_run_and_does_nothing(trainer, method):
    trainer.lr.set(0.25)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*fork")  # of Python and of JAX: the worker begins with the pool
        with multiprocessing.get_context(method).Pool(1) as pool:
            found = pool.apply(of_another_process, (trainer,))
    run = trainer.run
    assert found["known"] == (run.name, run.id, {"lr": 0.5, "token": found["known"][2]["token"]}, run.directory)
    assert found["known"][2]["token"] != "hidden"
    assert found["values"] == (0.25, trainer.decay.value)
    assert found["stopping"] is False
    assert found["warned"] == ["Run 'job' lives in another process"]
    assert trainer.run.directory.is_dir() is False  # nothing was written


def test_what_was_pickled_is_read_by_another_program(trainer, tmp_path):
    (tmp_path / "trainer.pkl").write_bytes(pickle.dumps((trainer.run, trainer.lr)))
    program = (
        "import pickle, sys; run, lr = pickle.load(open(sys.argv[1], 'rb')); print(run.id, lr.value, run.disabled)"
    )
    said = subprocess.check_output([sys.executable, "-c", program, str(tmp_path / "trainer.pkl")], text=True)
    assert said.split() == [trainer.run.id, "0.5", "True"]


def test_clients_and_streams_say_what_to_pass_instead(trainer):
    run = trainer.run
    run.log({"x": 1.0})
    run.flush()
    with sg.connect(run) as client, client.stream("log.x") as stream, sg.open(run.directory) as recorded:
        with pytest.raises(TypeError, match=f"connect there: sg.connect\\('{run.id}'\\)"):
            pickle.dumps(client)
        with pytest.raises(TypeError, match=r"Stream.*query"):
            copy.deepcopy(stream)
        with pytest.raises(TypeError, match=r"sg.open\('/"):
            copy.copy(recorded)
        with pytest.raises(TypeError, match=r"sg.fleet"), sg.fleet("job") as fleet:
            pickle.dumps(fleet)
