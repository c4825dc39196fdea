"""A logger for Lightning: `Trainer(logger=SightglassLogger("mnist"))`, alone or beside others."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from sightglass.callbacks.callback_run import CallbackRun, runs_of_loggers
from sightglass.callbacks.lightning import checkpoints_of
from sightglass.callbacks.lightning_package import lightning_package
from sightglass.core.process.current_run import Handle
from sightglass.core.process.files import runs_folder
from sightglass.training.run import Run

from . import media

lightning = lightning_package("The logger for Lightning")
on_rank_zero = lightning.utilities.rank_zero_only


class SightglassLogger(Handle, lightning.loggers.Logger):  # type: ignore[misc,name-defined]
    """Logs in a run what a module passes to `self.log`. To query its tensors, add the callback for Lightning.

    It has the methods of Lightning's logger for W&B. The run begins on rank 0, with `fit`, `validate` or `test`, or
    when somebody asks for it; it ends with each of them, and the next one continues it. Hyper-parameters become its
    config. Checkpoints go to `{folder of runs}/{name}/{version}/checkpoints`, unless the trainer says otherwise.
    """

    LOGGER_JOIN_CHAR: Final = "-"

    def __init__(self, run: Run | str = "lightning", *, prefix: str = "", **options: object) -> None:
        """Take a run, which stays open, or the name of one that begins with the training.

        Args:
            run: The run, or its name.
            prefix: What the names of metrics begin with, before a "-".
            **options: Arguments of `sightglass.init`, if `run` is a name; with `files=sg.Files(into=directory)` the run
                continues an earlier one.

        Raises:
            TypeError: `run` is neither a run nor a name, or options are given for a run that exists.
        """
        super().__init__()
        self._callback_run = CallbackRun(run, options)
        self._prefix = prefix
        self._step: float | None = None
        self._folder: Any = options.get("dir") or runs_folder()

    @property
    def name(self) -> str:
        """The name of the run."""
        return self._callback_run.name

    @property
    @lightning.loggers.logger.rank_zero_experiment  # type: ignore[untyped-decorator]
    def experiment(self) -> Run:
        """The run, which begins now, or continues, if it is not live; on other ranks than 0 a dummy of Lightning's."""
        run = self._callback_run.begin()
        runs_of_loggers.add(run)
        return run

    @property
    def version(self) -> str | None:
        """The id of the run, which begins now if it has not yet; `None` on other ranks than 0."""
        begun = self._begun()
        return None if begun is None else begun.id

    @property
    def save_dir(self) -> str:
        """The folder of the run's directory."""
        directory = self._callback_run.directory
        return os.fspath(self._folder if directory is None else directory.parent)

    @property
    def root_dir(self) -> str:
        """The folder of the run's directory."""
        return self.save_dir

    @property
    def log_dir(self) -> str | None:
        """The run's directory; `None` on other ranks than 0. The run begins now if it has not yet."""
        begun = self._begun()
        return None if begun is None else str(begun.directory)

    def _begun(self) -> CallbackRun | None:
        """Begin the run if there has been none; `None` on other ranks than 0, where the callback may have one."""
        if getattr(on_rank_zero, "rank", 0):
            return None
        if not self._callback_run.id:
            self._callback_run.begin()
        return self._callback_run

    @on_rank_zero  # type: ignore[untyped-decorator]
    def log_hyperparams(self, params: object = None, *rest: object, **options: object) -> None:
        """Make hyper-parameters part of the run's config, nested and with their types.

        Args:
            params: A mapping, an `argparse.Namespace`, a dataclass, or any other object with named parts.
            *rest: No effect: metrics, which Lightning's logger for TensorBoard takes here.
            **options: No effect.
        """
        self._callback_run.log_hyper_parameters(params)

    @on_rank_zero  # type: ignore[untyped-decorator]
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Log metrics: numbers, or any values that `Run.log` takes."""
        self._step = self._step if step is None else step
        begin = f"{self._prefix}{self.LOGGER_JOIN_CHAR}" if self._prefix else ""
        self.experiment.log({f"{begin}{name}": value for name, value in metrics.items()}, step=step)

    @on_rank_zero  # type: ignore[untyped-decorator]
    def log_table(
        self,
        key: str,
        columns: Sequence[str] | None = None,
        data: Sequence[Sequence[Any]] | None = None,
        dataframe: Any = None,
        step: int | None = None,
    ) -> None:
        """Log a table, of named columns and rows or a data frame, as `Table`.

        Raises:
            ValueError: A row has not as many items as there are columns.
        """
        self.log_metrics({key: media.table(columns, data, dataframe)}, step)

    @on_rank_zero  # type: ignore[untyped-decorator]
    def log_text(
        self,
        key: str,
        columns: Sequence[str] | None = None,
        data: Sequence[Sequence[str]] | None = None,
        dataframe: Any = None,
        step: int | None = None,
    ) -> None:
        """Log texts as a table. Errors as in `log_table`."""
        self.log_table(key, columns, data, dataframe, step)

    @on_rank_zero  # type: ignore[untyped-decorator]
    def log_image(self, key: str, images: list[Any], step: int | None = None, **each: Sequence[Any]) -> None:
        """Log pictures, as `Images`, or `{key}/{number}` if their sizes differ.

        Args:
            key: Their name.
            images: Tensors of shape (channels, height, width), arrays of shape (height, width, channels), images of
                Pillow, figures of Matplotlib, or paths.
            step: The step.
            **each: Lists with an item for each picture: `caption`; others, such as `boxes`, have no effect.

        Raises:
            TypeError: `images` is not a list.
            ValueError: A list in `each` has another length.
        """
        self.log_metrics({key: media.images(images, media.per_item("images", images, each))}, step)

    @on_rank_zero  # type: ignore[untyped-decorator]
    def log_audio(self, key: str, audios: list[Any], step: int | None = None, **each: Sequence[Any]) -> None:
        """Log a sound as `Audio`; several, or one with a caption, as a table.

        Args:
            key: Their name.
            audios: Arrays of shape (n,) or (n, channels), or paths of WAV files.
            step: The step.
            **each: Lists with an item for each sound: `sample_rate`, which arrays need; `caption`.

        Raises:
            TypeError: `audios` is not a list.
            ValueError: A list in `each` has another length, or an array has no sample rate.
        """
        self.log_metrics({key: media.sounds(audios, media.per_item("audios", audios, each))}, step)

    @on_rank_zero  # type: ignore[untyped-decorator]
    def log_video(self, key: str, videos: list[Any], step: int | None = None, **each: Sequence[Any]) -> None:
        """Log the frames of videos as `Images`; of several as `{key}/{number}`.

        Args:
            key: Their name.
            videos: Arrays of shape (frames, channels, height, width), uint8. A path of a video file is left out, with a
                warning.
            step: The step.
            **each: Lists with an item for each video: `caption`; others, such as `fps`, have no effect.

        Raises:
            TypeError: `videos` is not a list.
            ValueError: A list in `each` has another length.
        """
        if frames := media.videos(videos, media.per_item("videos", videos, each)):
            self.log_metrics({key: frames}, step)

    @on_rank_zero  # type: ignore[untyped-decorator]
    def watch(self, model: Any, log: str | None = "gradients", log_freq: int = 100, log_graph: bool = True) -> None:
        """Make the tensors of a module observable; `log`, `log_freq` and `log_graph` have no effect: clients ask."""
        _ = self.experiment
        self._callback_run.watch(model)

    @on_rank_zero  # type: ignore[untyped-decorator]
    def after_save_checkpoint(self, checkpoint_callback: object) -> None:
        """Record where the checkpoints are, with `Run.file`, at the step of the last metrics."""
        for path in checkpoints_of(checkpoint_callback):
            self._callback_run.file(path, step=self._step)

    def use_artifact(self, artifact: str, artifact_type: str | None = None) -> Path:
        """Record a file that the training uses, with `Run.file`, and return its path: a run keeps none itself.

        Errors as in `download_artifact`.
        """
        path = Path(self.download_artifact(artifact, artifact_type=artifact_type))
        if isinstance(run := self.experiment, Run):
            run.file(path, step=self._step)
        return path

    @staticmethod
    def download_artifact(
        artifact: str,
        save_dir: str | os.PathLike[str] | None = None,
        artifact_type: str | None = None,
        use_artifact: bool | None = True,
    ) -> str:
        """Return the path of a file: a run keeps no files to download. The other arguments have no effect.

        Raises:
            FileNotFoundError: There is no such file.
        """
        if not os.path.exists(artifact):
            raise FileNotFoundError(f"Expected the path of a file, since runs keep no artifacts, got {artifact!r}")
        return os.fspath(artifact)

    @on_rank_zero  # type: ignore[untyped-decorator]
    def finalize(self, status: str) -> None:
        """End the run, unless it was passed; what comes later continues it."""
        self._callback_run.end(sys.exception() if status != "success" else None)

    def _elsewhere(self) -> tuple[Any, ...]:
        self._callback_run.settle()  # the strategy "ddp_spawn" sends it to processes, and each stage to others
        return super()._elsewhere()
