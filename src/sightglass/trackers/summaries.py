# ruff: noqa: PLR0917  the parameters are PyTorch's
"""What all methods of the `SummaryWriter` share: the run, and what is left out; scalars, texts and tensors."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from platform import node
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sightglass.core.errors import warn
from sightglass.core.values import Audio, Image, Images, Tensor, Text, Value, array_kind, to_host
from sightglass.storage.event_log import TensorBoard
from sightglass.storage.file_names import EVENT_FILES
from sightglass.training.options import Files
from sightglass.training.process_runs import init
from sightglass.training.run import Run, wiring

WALL_TIME: Final = "walltime"
PLAIN_STEPS: Final = frozenset((int, float))


class Summaries:
    """A run that takes summaries.

    Attributes:
        run: The run that gets them.
        log_dir: Where it writes.
        n_left_out: How many calls of each method were left out, by the method's name.
    """

    _put: Callable[..., None]
    _put_number: Callable[[str, float, Any], None]

    def __init__(self, log_dir: str, run: Run | None, event_files: bool, options: Mapping[str, Any]) -> None:
        self.n_left_out: Counter[str] = Counter()
        self.log_dir = log_dir
        self._event_files = event_files
        self._options = options
        self._owns = run is None
        self._use(self._begin(log_dir, options) if run is None else run)

    def add_scalar(
        self,
        tag: str,
        scalar_value: Value,
        global_step: float | None = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """Log a number, without a loss of precision; a number on a device is not waited for.

        Args:
            tag: Its name.
            scalar_value: The number, or an array with one item.
            global_step: The step; by default a counter.
            walltime: A time to note with it, in seconds since the Unix epoch: the step track `walltime`.
            new_style: Has no effect, as `double_precision`: numbers are recorded as they are.
            double_precision: Has no effect.

        Raises:
            ValueError: The array has several items.
        """
        if type(scalar_value) is float and type(global_step) in PLAIN_STEPS and walltime is None:
            self._put_number(tag, scalar_value, global_step)
            return
        if array_kind(scalar_value) is not None and scalar_value.ndim:
            scalar_value = scalar_value.reshape(())
        if walltime is None:
            self._put({tag: scalar_value}, step=global_step)
        else:
            self._put({tag: scalar_value}, step=global_step, walltime=walltime)

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: Mapping[str, Value],
        global_step: float | None = None,
        walltime: float | None = None,
    ) -> None:
        """Log several numbers, as `{main_tag}/{tag}`."""
        self._log({main_tag: dict(tag_scalar_dict)}, global_step, walltime)

    def add_text(
        self, tag: str, text_string: str, global_step: float | None = None, walltime: float | None = None
    ) -> None:
        """Log a text."""
        self._log({tag: Text(text_string)}, global_step, walltime)

    def add_tensor(
        self, tag: str, tensor: Value, global_step: float | None = None, walltime: float | None = None
    ) -> None:
        """Log an array of any shape and dtype."""
        self._log({tag: Tensor(tensor)}, global_step, walltime)

    def add_hparams(
        self,
        hparam_dict: Mapping[str, Any],
        metric_dict: Mapping[str, Value],
        hparam_domain_discrete: Mapping[str, Any] | None = None,
        run_name: str | None = None,
        global_step: float | None = None,
    ) -> None:
        """Log the metrics of a set of hyper-parameters, as a run of its own whose config they are.

        Args:
            hparam_dict: The hyper-parameters.
            metric_dict: The metrics.
            hparam_domain_discrete: Has no effect: the page compares runs by their configs.
            run_name: The run's name, and its folder in `log_dir`; by default the time.
            global_step: The step of the metrics.
        """
        options = {**self._options, "config": dict(hparam_dict)}
        if self.run.disabled:
            options["mode"] = "disabled"
        with self._begin(os.path.join(self.log_dir, run_name or str(time.time())), options) as run:
            run.log(dict(metric_dict), step=global_step)

    def get_logdir(self) -> str:
        """Return `log_dir`."""
        return self.log_dir

    def flush(self) -> None:
        """Wait until everything is written.

        Raises:
            StorageError: A record could not be written.
        """
        self.run.flush()

    def close(self) -> None:
        """End the run, unless the caller passed it. What is added later begins it again, in the same directory.

        Raises:
            StorageError: A record could not be written.
        """
        self._end(None)

    def _end(self, kind: type[BaseException] | None) -> None:
        """End the run; `kind` is that of the exception that ends it, if any."""
        if self._owns and not self.run.ended:
            self._put = self._continue
            self._put_number = lambda tag, value, step: self._continue({tag: value}, step=step)
            self.run.__exit__(kind) if kind else self.run.close()

    def _log(self, data: Mapping[str, Any], global_step: float | None, walltime: float | None) -> None:
        track = {} if walltime is None else {WALL_TIME: walltime}
        self._put(data, step=global_step, **track)

    def _leave_out(self, method: str, why: str) -> None:
        """Count a call that records nothing; warn of the first one of its method."""
        self.n_left_out[method] += 1
        if self.n_left_out[method] == 1:
            warn(f"{method} records nothing: {why}. Further calls are counted in `n_left_out`")

    def _continue(self, data: Mapping[str, Any], *, step: float | None, **steps: float) -> None:
        self._use(self._begin(self.log_dir, self._options))
        self._put(data, step=step, **steps)

    def _use(self, run: Run) -> None:
        self.run = run
        self._put = run.log
        self._put_number = wiring(run).telemetry.events.log_number

    def _begin(self, folder: str, options: Mapping[str, Any]) -> Run:
        options = dict(options)
        if self._event_files:
            options["mirror"] = [*options.get("mirror", ()), EventFiles(Path(folder) / EVENT_FILES)]
        return init(Path(folder).resolve().name or "run", **{"files": Files(into=folder), **options})


class EventFiles(TensorBoard):
    """Event files whose times are those that the program passed as `walltime`, where it did."""

    def write(self, records: Any) -> None:
        """Write records. Errors as in `TensorBoard.write`."""
        super().write([replace(record, wall_time=record.steps.get(WALL_TIME, record.wall_time)) for record in records])


def folder_name(comment: str) -> str:
    """Return the default directory, which is PyTorch's: `runs/{date}_{host}{comment}`."""
    return os.path.join("runs", f"{datetime.now():%b%d_%H-%M-%S}_{node() or 'host'}{comment}")


# The methods of the `SummaryWriter` for pictures, sounds and shapes.


class MediaSummaries(Summaries):
    """Takes summaries of pictures, sounds and shapes."""

    def add_image(
        self,
        tag: str,
        img_tensor: Value,
        global_step: float | None = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """Log a picture.

        Args:
            tag: Its name.
            img_tensor: uint8 from 0 to 255, or floats from 0 to 1.
            global_step: The step; by default a counter.
            walltime: As in `add_scalar`.
            dataformats: What its axes are: "CHW", "HWC" or "HW"; with "N" it is several pictures.

        Raises:
            ValueError: The axes do not match the array.
        """
        pixels = by_rows(img_tensor, dataformats)
        self._log({tag: Images(pixels) if "N" in dataformats.upper() else Image(pixels)}, global_step, walltime)

    def add_images(
        self,
        tag: str,
        img_tensor: Value,
        global_step: float | None = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """Log several pictures of one size; see `add_image`."""
        self.add_image(tag, img_tensor, global_step, walltime, dataformats)

    def add_image_with_boxes(
        self,
        tag: str,
        img_tensor: Value,
        box_tensor: Value,
        global_step: float | None = None,
        walltime: float | None = None,
        rescale: float = 1,
        dataformats: str = "CHW",
        labels: Sequence[str] | None = None,
    ) -> None:
        """Log a picture with red boxes; the labels become its caption.

        Args:
            tag: Its name.
            img_tensor: As in `add_image`.
            box_tensor: Shape (n, 4): left, top, right and bottom of each box, in pixels.
            global_step: The step; by default a counter.
            walltime: As in `add_scalar`.
            rescale: By how much the picture is enlarged.
            dataformats: As in `add_image`.
            labels: A label for each box.

        Raises:
            ValueError: The axes do not match the array.
        """
        pixels = enlarged(with_boxes(by_rows(img_tensor, dataformats), to_host(box_tensor)), rescale)
        self._log({tag: Image(pixels, caption=", ".join(labels or ()))}, global_step, walltime)

    def add_figure(
        self,
        tag: str,
        figure: Value | list[Value],
        global_step: int | None = None,
        close: bool = True,
        walltime: float | None = None,
    ) -> None:
        """Log a Matplotlib figure, or several, as `{tag}/0` and so on; they are drawn here.

        Args:
            tag: Its name.
            figure: The figure, or a list of figures.
            global_step: The step; by default a counter.
            close: Whether pyplot closes it afterwards.
            walltime: As in `add_scalar`.
        """
        several = figure if isinstance(figure, list) else [figure]
        drawn: Any = {str(i): each for i, each in enumerate(several)} if isinstance(figure, list) else figure
        self._log({tag: drawn}, global_step, walltime)
        pyplot = sys.modules.get("matplotlib.pyplot")
        if close and pyplot is not None:
            for each in several:
                pyplot.close(each)

    def add_video(
        self,
        tag: str,
        vid_tensor: Value,
        global_step: float | None = None,
        fps: float = 4,
        walltime: float | None = None,
    ) -> None:
        """Record nothing: a run has no value type for films. The call is counted."""
        self._leave_out("add_video", "a run has no value type for films; log its frames with add_images")

    def add_audio(
        self,
        tag: str,
        snd_tensor: Value,
        global_step: float | None = None,
        sample_rate: int = 44100,
        walltime: float | None = None,
    ) -> None:
        """Log a sound.

        Args:
            tag: Its name.
            snd_tensor: Shape (1, n): floats from -1 to 1.
            global_step: The step; by default a counter.
            sample_rate: Samples in a second.
            walltime: As in `add_scalar`.
        """
        samples = np.atleast_1d(np.squeeze(np.asarray(to_host(snd_tensor))))
        floats = samples if samples.dtype.kind == "f" else samples.astype(np.float32)
        self._log({tag: Audio(floats, sample_rate)}, global_step, walltime)

    def add_mesh(
        self,
        tag: str,
        vertices: Value,
        colors: Value | None = None,
        faces: Value | None = None,
        config_dict: Any = None,
        global_step: float | None = None,
        walltime: float | None = None,
    ) -> None:
        """Record nothing: a run has no value type for meshes. The call is counted."""
        self._leave_out("add_mesh", "a run has no value type for meshes; log their arrays with add_tensor")

    def add_embedding(
        self,
        mat: Value,
        metadata: Sequence[Any] | None = None,
        label_img: Value | None = None,
        global_step: float | None = None,
        tag: str = "default",
        metadata_header: Sequence[str] | None = None,
    ) -> None:
        """Record nothing: a run has no value type for embeddings. The call is counted."""
        self._leave_out("add_embedding", "a run has no value type for embeddings; log the points with add_tensor")


# Pictures as PyTorch's summaries have them, as those of a run: rows first, channels last.

Pixels = npt.NDArray[Any]

RED: Final = (255, 0, 0)


def by_rows(picture: Value, axes: str) -> Pixels:
    """Return one or several pictures with the axes (count, height, width, channels), those that it has.

    Args:
        picture: uint8 from 0 to 255, or other numbers from 0 to 1, which become floats.
        axes: What its axes are, such as "CHW".

    Raises:
        ValueError: The axes do not match the array, or are unknown.
    """
    pixels = np.asarray(to_host(picture))
    given = axes.upper()
    if len({*given}) != len(given) or not {"H", "W"} <= {*given} <= {*"NHWC"} or pixels.ndim != len(given):
        raise ValueError(f"Expected axes such as 'CHW' for an array of shape {pixels.shape}, got {axes!r}")
    pixels = pixels.transpose([given.index(axis) for axis in "NHWC" if axis in given])
    return pixels if pixels.dtype == np.uint8 else np.clip(pixels.astype(np.float32), 0.0, 1.0)


def with_boxes(pixels: Pixels, boxes: npt.ArrayLike) -> Pixels:
    """Return a picture with three channels and red boxes.

    Args:
        pixels: Shape (height, width) or (height, width, channels).
        boxes: Shape (n, 4): left, top, right and bottom of each, in pixels; what is outside is cut off.
    """
    shown = pixels[..., np.newaxis] if pixels.ndim == 2 else pixels
    shown = np.repeat(shown, 3, axis=2) if shown.shape[2] == 1 else shown[..., :3].copy()
    red = np.asarray(RED, shown.dtype) if shown.dtype == np.uint8 else np.asarray(RED, np.float32) / 255
    last_row, last_column = shown.shape[0] - 1, shown.shape[1] - 1
    for left, top, right, bottom in np.asarray(boxes, np.float64).reshape(-1, 4).round().astype(int):
        rows = slice(max(0, top), bottom + 1)
        columns = slice(max(0, left), right + 1)
        for row in (top, bottom):
            if 0 <= row <= last_row:
                shown[row, columns] = red
        for column in (left, right):
            if 0 <= column <= last_column:
                shown[rows, column] = red
    return shown


def enlarged(pixels: Pixels, factor: float) -> Pixels:
    """Return a picture enlarged, or reduced, by the nearest pixels."""
    if factor == 1:
        return pixels
    height, width = (max(1, int(n * factor)) for n in pixels.shape[:2])
    rows = np.arange(height) * pixels.shape[0] // height
    columns = np.arange(width) * pixels.shape[1] // width
    chosen: Pixels = pixels[rows[:, np.newaxis], columns]
    return chosen
