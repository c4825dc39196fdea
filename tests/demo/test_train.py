from __future__ import annotations

import numpy as np
import pytest

from sightglass.demo import digits, network, train


def fixed(options):
    controls = train.Controls(lr=options.lr, weight_decay=options.weight_decay, noise=options.noise)
    return lambda: controls


def test_a_few_epochs_reach_95_percent():
    images, labels, test_images, test_labels = digits.load()
    options = train.TrainingOptions()
    state, rng = train.start(options), np.random.default_rng(0)
    for _ in range(8):
        for batch in train.train_epoch(state, images, labels, options=options, rng=rng, controls=fixed(options)):
            state = batch.state
    assert network.accuracy(state.params, test_images, test_labels) > 0.95


def test_an_epoch_goes_through_every_image_once():
    images, labels, *_ = digits.load()
    options = train.TrainingOptions(batch_size=400, noise=0.0)
    batches = list(
        train.train_epoch(
            train.start(options), images, labels, options=options, rng=np.random.default_rng(0), controls=fixed(options)
        )
    )
    assert [len(batch.y) for batch in batches] == [400, 400, 400, 300]
    assert [batch.state.step for batch in batches] == [1, 2, 3, 4]
    seen = np.concatenate([batch.x for batch in batches])
    assert sorted(map(bytes, seen)) == sorted(map(bytes, images))
    assert all(batch.pred.shape == batch.y.shape for batch in batches)
    assert batches[0].x.dtype == batches[0].state.params["dense1"]["kernel"].dtype == np.float32


def test_controls_are_read_before_each_step():
    images, labels, *_ = digits.load()
    options = train.TrainingOptions(batch_size=500)
    rates = iter([0.1, 0.0, 0.0])
    epoch = train.train_epoch(
        train.start(options),
        images,
        labels,
        options=options,
        rng=np.random.default_rng(0),
        controls=lambda: train.Controls(lr=next(rates), weight_decay=0.0, noise=0.0),
    )
    first, second, third = (batch.state.params["dense1"]["kernel"] for batch in epoch)
    assert np.array_equal(first, second)
    assert np.array_equal(second, third)


def test_training_is_the_same_for_the_same_seed():
    images, labels, *_ = digits.load()
    options = train.TrainingOptions(seed=7)
    losses = [
        [
            batch.loss
            for batch in train.train_epoch(
                train.start(options),
                images,
                labels,
                options=options,
                rng=np.random.default_rng(7),
                controls=fixed(options),
            )
        ]
        for _ in range(2)
    ]
    assert losses[0] == losses[1]


def test_confusion_has_true_classes_in_rows_and_predicted_ones_in_columns():
    matrix = train.confusion(np.array([1, 1, 9], np.uint8), np.array([1, 2, 9], np.uint8))
    assert matrix.shape == (10, 10)
    assert matrix.dtype == np.int64
    assert {(int(r), int(c)): int(matrix[r, c]) for r, c in np.argwhere(matrix)} == {(1, 1): 1, (1, 2): 1, (9, 9): 1}


def test_a_checkpoint_holds_the_parameters(tmp_path):
    state = train.start(train.TrainingOptions())
    path = train.save_checkpoint(state, tmp_path)
    assert path == tmp_path / "step-0.npz"
    with np.load(path) as stored:
        assert sorted(stored) == sorted(f"dense{i}/{name}" for i in (1, 2, 3) for name in ("bias", "kernel"))
        assert np.array_equal(stored["dense2/kernel"], state.params["dense2"]["kernel"])


def test_depth_and_width_make_the_network():
    assert train.TrainingOptions(depth=1).sizes == (64, 10)
    assert train.TrainingOptions(depth=4, width=16).sizes == (64, 16, 16, 16, 10)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epochs", "0"], "argument --epochs: Expected a whole number from 1, got '0'"),
        (["--lr", "nan"], "argument --lr: Expected a finite number from 0, got 'nan'"),
        (["--delay-ms", "-1"], "argument --delay-ms: Expected a finite number from 0, got '-1'"),
        (["--forever", "--epochs", "3"], "argument --epochs: not allowed with argument --forever"),
    ],
)
def test_a_wrong_command_line_is_refused(arguments, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        train.read_arguments(arguments)
    assert message in capsys.readouterr().err


def test_the_default_demo_lasts_about_half_a_minute():
    options = train.TrainingOptions()
    n_batches = options.epochs * -(-1500 // options.batch_size)
    assert 25 <= n_batches * options.delay_s <= 40
