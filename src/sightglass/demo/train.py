"""Train a small network on handwritten digits while clients watch: `python -m sightglass.demo.train`.

The training itself is `train_epoch`, a generator that does not use sightglass. `main` starts a run, observes what the
generator yields, and lets clients set `lr`, `weight_decay` and `noise`, save a checkpoint, pause and stop.
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

import sightglass as sg
from sightglass.core.process.threads import Background

from . import digits, network
from .network import Array, Params

MOMENTUM: Final = 0.9  # the usual value; the demo has no need to tune it
N_IMAGES: Final = 16  # a grid of 4 by 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOptions:
    """The options of a training.

    Attributes:
        epochs: The number of passes over the training images; `None` for no end.
        batch_size: Images per step.
        width: Units in each hidden layer.
        depth: The number of layers, the last included.
        activation: A name in `network.ACTIVATIONS`.
        init_scale: A factor on the spread of the initial kernels.
        lr: The initial learning rate.
        weight_decay: The initial weight decay.
        noise: The initial standard deviation of the noise added to the pixels, which are from 0 to 1.
        seed: The seed of all random numbers.
        delay_s: The pause after each batch, in seconds; by default long enough to watch the charts grow.
        checkpoint_dir: The folder of the checkpoints; `None` for a new temporary one.
    """

    epochs: int | None = 20
    batch_size: int = 32
    width: int = 64
    depth: int = 3
    activation: str = "relu"
    init_scale: float = 1.0
    lr: float = 0.05
    weight_decay: float = 1e-4
    noise: float = 0.2
    seed: int = 0
    delay_s: float = 0.03
    checkpoint_dir: Path | None = None

    @property
    def sizes(self) -> tuple[int, ...]:
        """The widths of the network, from the pixels to the classes."""
        return (digits.SIDE**2, *[self.width] * (self.depth - 1), digits.N_CLASSES)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The state of a training.

    Attributes:
        params: The network's parameters.
        velocity: The momentum's running mean of gradients, in the structure of `params`.
        step: The number of batches so far.
    """

    params: Params
    velocity: Params
    step: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingBatch:
    """The results of one training step.

    Attributes:
        state: The state after the step.
        loss: The mean cross-entropy before the step, in nats.
        grads: The gradients of the loss, in the structure of the parameters.
        activations: The output of every layer by name, shape (n_samples, n_units).
        x: The inputs, shape (n_samples, 64), noise included.
        y: Their classes, shape (n_samples,).
        pred: The predicted classes, shape (n_samples,).
    """

    state: State
    loss: float
    grads: Params
    activations: dict[str, Array]
    x: Array
    y: Array
    pred: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Controls:
    """The values that clients may change between steps; see `TrainingOptions`."""

    lr: float
    weight_decay: float
    noise: float


def start(options: TrainingOptions) -> State:
    """Return the state before the first step."""
    params = network.init(options.sizes, seed=options.seed, activation=options.activation, scale=options.init_scale)
    return State(params=params, velocity=network.zeros_like(params))


def train_epoch(
    state: State,
    images: Array,
    labels: Array,
    *,
    options: TrainingOptions,
    rng: np.random.Generator,
    controls: Callable[[], Controls],
) -> Iterator[TrainingBatch]:
    """Train one pass over the images, in random order.

    Args:
        state: The state before the first step.
        images: Shape (n, 64), float32 from 0 to 1.
        labels: Shape (n,), integers from 0.
        options: The options of the training.
        rng: Draws the order and the noise.
        controls: Called before each step.

    Yields:
        One `TrainingBatch` per step; the last one is smaller when the batch size does not divide n.
    """
    order = rng.permutation(len(labels))
    for begin in range(0, len(order), options.batch_size):
        rows, current = order[begin : begin + options.batch_size], controls()
        noise = rng.standard_normal((len(rows), images.shape[1]), dtype=np.float32)
        x, y = images[rows] + current.noise * noise, labels[rows]
        loss, grads, activations = network.loss_and_grads(state.params, x, y, activation=options.activation)
        params, velocity = network.update(
            state.params, grads, state.velocity, lr=current.lr, weight_decay=current.weight_decay, momentum=MOMENTUM
        )
        state = State(params=params, velocity=velocity, step=state.step + 1)
        *_, logits = activations.values()
        pred = logits.argmax(axis=1)
        yield TrainingBatch(state=state, loss=loss, grads=grads, activations=activations, x=x, y=y, pred=pred)


def confusion(labels: npt.ArrayLike, predictions: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return the confusion matrix: how often each class was predicted as each other.

    Returns:
        Shape (10, 10): the rows are the true classes, the columns the predicted ones.

    Example:
        >>> int(confusion([3, 3, 5], [3, 8, 5])[3, 8])
        1
    """
    n = digits.N_CLASSES
    cells = np.asarray(labels, np.int64) * n + np.asarray(predictions, np.int64)
    return np.bincount(cells, minlength=n * n).astype(np.int64).reshape(n, n)


def save_checkpoint(state: State, directory: Path) -> Path:
    """Write the parameters to `step-N.npz`, under names such as "dense1/kernel", and return its path."""
    path = directory / f"step-{state.step}.npz"
    arrays: dict[str, Any] = {
        f"{layer}/{name}": array for layer, group in state.params.items() for name, array in group.items()
    }
    np.savez(path, **arrays)
    return path


# A learning rate that is too high makes everything infinite. The charts show that; warnings would only repeat it.
@np.errstate(over="ignore", invalid="ignore")
def train(run: sg.Run, options: TrainingOptions, *, say: Callable[[str], object]) -> State:
    """Train to the end, or until a client stops the run.

    Args:
        run: The run that observes the training.
        options: The options of the training.
        say: Called with one line after each epoch.

    Returns:
        The last state.
    """
    images, labels, test_images, test_labels = digits.load()
    rng = np.random.default_rng(options.seed)
    state = start(options)
    directory = options.checkpoint_dir

    def checkpoint() -> str:
        """Save the current parameters, and return the path of the file."""
        nonlocal directory
        directory = directory or Path(tempfile.mkdtemp(prefix="sightglass-demo-"))
        return str(save_checkpoint(state, directory))

    controls = declare_controls(run, options)
    run.action("checkpoint", checkpoint)
    run.function("confusion", confusion)
    run.observe("init", snapshot=True, params=state.params)
    for epoch in count_epochs(options.epochs):
        for batch in train_epoch(state, images, labels, options=options, rng=rng, controls=controls):
            state = batch.state
            observe_batch(run, batch, epoch=epoch)
            if run.stopping:
                return state
            time.sleep(options.delay_s)
        run.end_group("batch")
        loss, accuracy = observe_epoch(run, batch, test_images, test_labels, epoch=epoch, activation=options.activation)
        say(f"epoch {epoch}: loss {loss:.3f}, accuracy {accuracy:.3f}")
    return state


def count_epochs(n: int | None) -> Iterable[int]:
    """Count from 0 to n, or without end."""
    return itertools.count() if n is None else range(n)


def declare_controls(run: sg.Run, options: TrainingOptions) -> Callable[[], Controls]:
    """Declare the controls, and return a function that reads them."""
    lr = run.control("lr", options.lr, min=0.0, max=max(1.0, options.lr))
    weight_decay = run.control("weight_decay", options.weight_decay, min=0.0, max=1.0)
    noise = run.control("noise", options.noise, min=0.0, max=2.0)
    return lambda: Controls(lr=lr.value, weight_decay=weight_decay.value, noise=noise.value)


def observe_batch(run: sg.Run, batch: TrainingBatch, *, epoch: int) -> None:
    """Observe a batch: `params` are those after the step, `grads` those that it used."""
    run.observe(
        "batch",
        step=batch.state.step,
        epoch=epoch,
        loss=batch.loss,
        grads=batch.grads,
        params=batch.state.params,
        activations=batch.activations,
        x=batch.x,
        y=batch.y,
        pred=batch.pred,
    )
    run.log({"train/loss": batch.loss}, step=batch.state.step)


def observe_epoch(
    run: sg.Run, batch: TrainingBatch, images: Array, labels: Array, *, epoch: int, activation: str
) -> tuple[float, float]:
    """Evaluate the network after an epoch, observe the epoch, and log the results.

    Args:
        run: The run.
        batch: The epoch's last batch.
        images: The test images, shape (n, 64).
        labels: Their classes, shape (n,).
        epoch: The number of the epoch, from 0.
        activation: The network's activation.

    Returns:
        The mean loss in nats and the accuracy on the test images.
    """
    params = batch.state.params
    loss, pred = network.evaluate(params, images, labels, activation=activation)
    accuracy = float((pred == labels).mean())
    run.observe("epoch", epoch=epoch, accuracy=accuracy, loss=loss, params=params, x=images, y=labels, pred=pred)
    run.log(
        {
            "val/loss": loss,
            "val/accuracy": accuracy,
            "kernel": sg.Tensor(params["dense1"]["kernel"]),
            "activations": sg.Histogram(batch.activations["dense1"]),
            "digits": captioned(images[:N_IMAGES], pred[:N_IMAGES]),
        },
        step=batch.state.step,
    )
    return loss, accuracy


def captioned(images: Array, predictions: Array) -> sg.Images:
    """Return images of shape (n, 64) with their predicted classes as captions."""
    shape = (-1, digits.SIDE, digits.SIDE)
    return sg.Images(images.reshape(shape), captions=tuple(str(digit) for digit in predictions))


def main(argv: Sequence[str] | None = None) -> int:
    """Train as the command line says, and return the exit code."""
    args = read_arguments(argv)
    options = TrainingOptions(
        epochs=None if args.forever else args.epochs,
        depth=args.depth,
        width=args.width,
        activation=args.activation,
        init_scale=args.init_scale,
        lr=args.lr,
        seed=args.seed,
        delay_s=args.delay_ms / 1000,
        checkpoint_dir=args.checkpoint_dir,
    )
    say: Callable[[str], object] = (lambda line: None) if args.quiet else (lambda line: print(line, flush=True))
    config = {
        "sizes": list(options.sizes),
        "activation": options.activation,
        "init_scale": options.init_scale,
        "lr": options.lr,
        "batch_size": options.batch_size,
        "seed": options.seed,
    }
    if args.until_eof:
        Background("stdin", _end_with_stdin)
    try:
        with sg.init(args.name, dir=args.dir, config=config) as run:
            say(f"training {args.name!r}; watch it with: sightglass watch {args.name} batch.loss")
            train(run, options, say=say)
    except KeyboardInterrupt:
        return 130
    return 0


def _end_with_stdin() -> None:
    """End when the program that started this has ended, even if it was killed."""
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def read_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line, or exit with a usage error."""
    defaults = TrainingOptions()
    parser = argparse.ArgumentParser(prog="python -m sightglass.demo.train", description=__doc__.partition("\n")[0])
    length = parser.add_mutually_exclusive_group()
    length.add_argument(
        "--epochs", type=positive, default=defaults.epochs, help="how many epochs (default %(default)s)"
    )
    length.add_argument("--forever", action="store_true", help="train until stopped")
    parser.add_argument("--until-eof", action="store_true", help=argparse.SUPPRESS)  # of stdin
    parser.add_argument("--delay-ms", type=not_negative, default=1000 * defaults.delay_s, help="pause after each batch")
    parser.add_argument("--seed", type=int, default=defaults.seed)
    parser.add_argument("--name", default="demo", help="the run's name (default %(default)s)")
    parser.add_argument("--dir", default="runs", help="the folder for the run directory (default %(default)s)")
    parser.add_argument("--lr", type=not_negative, default=defaults.lr, help="learning rate (default %(default)s)")
    parser.add_argument("--activation", choices=sorted(network.ACTIVATIONS), default=defaults.activation)
    parser.add_argument("--depth", type=positive, default=defaults.depth, help="number of layers (default %(default)s)")
    parser.add_argument("--width", type=positive, default=defaults.width, help="units per layer (default %(default)s)")
    parser.add_argument(
        "--init-scale", type=not_negative, default=defaults.init_scale, help="factor on the initial kernels"
    )
    parser.add_argument("--checkpoint-dir", type=Path, help="where the action `checkpoint` writes (default: temporary)")
    parser.add_argument("--quiet", action="store_true", help="print nothing")
    return parser.parse_args(argv)


def positive(text: str) -> int:
    """Parse a whole number from 1."""
    n = int(text)
    if n < 1:
        raise argparse.ArgumentTypeError(f"Expected a whole number from 1, got {text!r}")
    return n


def not_negative(text: str) -> float:
    """Parse a finite number from 0."""
    x = float(text)
    if not 0 <= x < float("inf"):
        raise argparse.ArgumentTypeError(f"Expected a finite number from 0, got {text!r}")
    return x


if __name__ == "__main__":
    sys.exit(main())
