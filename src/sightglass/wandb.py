# ruff: noqa: PLR0917  the parameters are W&B's
"""The interface of Weights & Biases without an account, a server or its package: `import sightglass.wandb as wandb`.

What a program logs is recorded in a run of Sightglass, which clients can ask while it runs. Without a project it is in
the folder of runs, else in a folder of the project's name there; `dir=` and `WANDB_DIR` name another folder of runs.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from .core.errors import SightglassError, TransportError, warn
from .core.process.files import runs_folder
from .storage.run_directory import safe_name
from .trackers import wandb_run, wandb_values
from .trackers.wandb_run import WandbRun
from .trackers.wandb_state import WandbConfig, entries_of
from .trackers.wandb_values import WandbTable, unkept, unkept_class
from .training.options import Files
from .training.process_runs import init as begin
from .training.run import wiring

Run, AlertLevel = WandbRun, wandb_run.AlertLevel
Image, Histogram, Audio = wandb_values.WandbImage, wandb_values.WandbHistogram, wandb_values.WandbAudio
Table, Html, Plotly = WandbTable, wandb_values.WandbHtml, wandb_values.WandbPlotly
EvalTable = Table
Error = UsageError = SightglassError
CommError = TransportError

METHODS: Final = (
    "log", "define_metric", "watch", "unwatch", "alert", "save", "mark_preempting", *wandb_run.LEFT_OUT,
)  # fmt: skip
"""The functions of the module that are methods of the active run."""
UNKEPT: Final = {
    "Artifact": "write files into run.dir", "Video": "log its frames as pictures", "Molecule": "", "Graph": "",
    "Object3D": "log its points as an array", "Classes": "", "ArtifactTTL": "", "box3d": "", "controller": "",
    "Api": "sightglass.open reads recorded runs", "sweep": "call your function with each config",
    "agent": "call your function with each config",
}  # fmt: skip
"""What has no effect, and what to do instead."""
MODES: Final = ("online", "offline", "shared", "dryrun", "run", "disabled")
RESUMES: Final = (None, False, True, "allow", "auto", "must", "never")
ARGUMENTS: Final = {
    "project": ("project", "PROJECT"), "entity": ("entity", "ENTITY"), "name": ("run_name", "NAME"),
    "id": ("run_id", "RUN_ID"), "group": ("run_group", "RUN_GROUP"), "tags": ("run_tags", "TAGS"),
    "notes": ("run_notes", "NOTES"), "job_type": ("run_job_type", "JOB_TYPE"), "mode": ("mode", "MODE"),
    "dir": ("root_dir", "DIR"), "resume": ("resume", "RESUME"),
}  # fmt: skip
"""Arguments of `init` that `Settings` may have, too, and the environment, as `WANDB_{name}`."""

_active: Final[list[WandbRun]] = []


def init(
    entity: str | None = None, project: str | None = None, dir: str | os.PathLike[str] | None = None,
    id: str | None = None, name: str | None = None, notes: str | None = None, tags: Sequence[str] | None = None,
    config: Any = None, config_exclude_keys: Sequence[str] | None = None,
    config_include_keys: Sequence[str] | None = None, allow_val_change: bool | None = None, group: str | None = None,
    job_type: str | None = None, mode: str | None = None, force: bool | None = None, reinit: bool | str | None = None,
    resume: bool | str | None = None, settings: Any = None, **others: Any,
) -> WandbRun:  # fmt: skip
    """Begin a run, or return the one that is active.

    The environment's `WANDB_PROJECT`, `WANDB_NAME`, `WANDB_RUN_ID`, `WANDB_DIR`, `WANDB_RUN_GROUP`, `WANDB_TAGS`,
    `WANDB_NOTES`, `WANDB_JOB_TYPE`, `WANDB_RESUME` and `WANDB_MODE` stand for arguments that are not given.

    Args:
        entity: Noted only, as `force`, `allow_val_change` and `others`.
        project: The folder of the run's directory, in `dir`.
        dir: The folder of runs.
        id: Its id, by which it is resumed; by default a new one.
        name: Its name; by default its id.
        notes: The notes of the recorded run.
        tags: The labels of the recorded run; `group` and `job_type` are labels, too.
        config: A mapping, a namespace, or flags of absl.
        config_exclude_keys: Entries of `config` to leave out.
        config_include_keys: The only entries of `config` to take.
        allow_val_change: See above.
        group: See above.
        job_type: See above.
        mode: "disabled" makes every call a no-op; the others are the same.
        force: See above.
        reinit: `True` or "finish_previous" ends an active run; "create_new" leaves it active beside the new one.
        resume: "allow" or `True` continues the run of this id, if there is one; "must" if there has to be one, "never"
            if there must not be.
        settings: `Settings`, or a mapping, that may have some of these arguments.
        **others: See above.

    Raises:
        SightglassError: `resume` is "must" and there is no such run, or "never" and there is one.
        ValueError: `mode` or `resume` is unknown.
    """
    if others.get("sync_tensorboard") or others.get("tensorboard"):
        unkept("init(sync_tensorboard=…)", "sightglass.trackers.tensorboard has a SummaryWriter")
    if others.get("resume_from") or others.get("fork_from"):
        unkept("init(fork_from=…)", "resume continues a run by its id")
    about = _about(
        settings, project=project, entity=entity, name=name, id=id, group=group, tags=tags, notes=notes,
        job_type=job_type, mode=mode, dir=dir, resume=resume,
    )  # fmt: skip
    mode, resume = about.pop("mode") or "online", about.pop("resume")
    if mode not in MODES or resume not in RESUMES:
        raise ValueError(f"Expected a mode of {MODES} and resume as one of {RESUMES}, got {mode!r} and {resume!r}")
    active, reinit = _current(), reinit or ("finish_previous" if "ipykernel" in sys.modules else "default")
    if active is not None and reinit in ("default", "return_previous"):
        warn(f"Run {active.name!r} is active, and wandb.init returns it. End it first, or pass reinit=True")
        return active
    if active is not None and reinit != "create_new":
        active.finish()
    folder = Path(about.pop("dir") or runs_folder(), safe_name(about["project"]) if about["project"] else "")
    earlier = None if about["id"] is None else _directory(folder, about["id"])
    if (resume == "must" and earlier is None) or (resume == "never" and earlier is not None):
        found = "there is none" if earlier is None else f"there is one: {earlier}"
        raise SightglassError(f"Expected resume={resume!r} for run {about['id']!r} in {folder}, but {found}")
    about["id"] = about["id"] or generate_id()
    name = about.pop("name") or about["id"]
    left = {*(config_exclude_keys or ())}
    entries = {
        key: value for key, value in entries_of(config).items() if key in {*(config_include_keys or [key])} - left
    }
    ending = _id(about["id"])
    into = earlier or folder / (ending if name == about["id"] else f"{safe_name(name)}.{ending}")
    run = begin(name, config=entries, files=Files(into=into), mode="disabled" if mode == "disabled" else None)

    def changed(changes: Mapping[str, Any]) -> None:
        run.config = {**run.config, **changes}
        wiring(run).change_config(changes)

    resumed = bool(resume) and earlier is not None and not run.disabled
    about["project"] = about["project"] or "uncategorized"
    made = Run(run, config=WandbConfig(changed, entries), ended=_forget, settings=settings, resumed=resumed, **about)
    if active is None or reinit != "create_new":
        _active.append(made)
    return made


def _about(settings: Any, **given: Any) -> dict[str, Any]:
    """Return arguments of `init`, or what the settings or the environment have in their place."""
    told = settings if isinstance(settings, Mapping) else vars(settings) if settings is not None else {}
    found = {}
    for name, (setting, variable) in ARGUMENTS.items():
        value = told.get(setting) if given[name] is None else given[name]
        found[name] = os.environ.get(f"WANDB_{variable}") or None if value is None else value
    if os.environ.get("WANDB_DISABLED", "").lower() in ("true", "1"):
        found["mode"] = "disabled"
    if isinstance(found["tags"], str):
        found["tags"] = found["tags"].split(",")
    return found


def _id(id: str) -> str:
    """Return an id as the end of the name of a directory: without dots, of which the last one is before the id."""
    return safe_name(id).replace(".", "_")


def _directory(folder: Path, id: str) -> Path | None:
    """Return the directory of the run of an id."""
    try:
        return next((path for path in folder.iterdir() if path.name.rpartition(".")[2] == _id(id)), None)
    except OSError:
        return None


def _current() -> WandbRun | None:
    return next((run for run in reversed(_active) if not run.run.ended or run.disabled), None)


def _forget(run: WandbRun) -> None:
    if run in _active:
        _active.remove(run)


def finish(exit_code: int | None = None, quiet: bool | None = None) -> None:
    """End the active run, if there is one."""
    if (run := _current()) is not None:
        run.finish(exit_code)


def _of_run(name: str) -> Callable[..., Any]:
    """Return a function that calls a method of the active run."""

    def call(*arguments: Any, **options: Any) -> Any:
        if (run := _current()) is None:
            raise SightglassError(f"No run is active: call wandb.init() before wandb.{name}()")
        return getattr(run, name)(*arguments, **options)

    return call


class _NoRun:
    """The config or the summary while no run is active."""

    def __getattr__(self, name: str) -> Any:
        raise SightglassError(f"No run is active: call wandb.init() before you use {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        self.__getattr__(name)

    def __getitem__(self, name: str) -> Any:
        self.__getattr__(name)

    __setitem__ = __setattr__


def __getattr__(name: str) -> Any:
    if name == "run":
        return _current()
    if name in ("config", "summary"):
        run = _current()
        return _NoRun() if run is None else getattr(run, name)
    if name in METHODS:
        return _of_run(name)
    if name in UNKEPT:
        return unkept_class(name, UNKEPT[name])
    raise AttributeError(f"module 'sightglass.wandb' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), "run", "config", "summary", *METHODS, *UNKEPT]


def Settings(**settings: Any) -> SimpleNamespace:
    """Return settings for `init`; those of `ARGUMENTS` have an effect."""
    return SimpleNamespace(**settings)


def login(*arguments: Any, **options: Any) -> bool:
    """Return `True`: there is no account."""
    return True


def setup(*arguments: Any, **options: Any) -> None:
    """Change nothing."""


teardown = require = ensure_configured = setup
join = finish


def termlog(string: str = "", newline: bool = True, repeat: bool = True, **options: Any) -> None:
    """Print a line on stderr."""
    print(f"wandb: {string}", file=sys.stderr, end="\n" if newline else "")  # noqa: T201  what the program asks for


termwarn = termerror = termlog


def generate_id(length: int = 8) -> str:
    """Return a new id of a run."""
    return "".join(secrets.choice("0123456789abcdefghijklmnopqrstuvwxyz") for _ in range(length))


plot: Final = SimpleNamespace(
    **dict.fromkeys(("line", "scatter", "histogram", "bar"), wandb_values.chart_of),
    line_series=wandb_values.line_series, confusion_matrix=wandb_values.confusion_matrix,
    **{name: unkept_class(f"plot.{name}", "log its points as a table") for name in ("pr_curve", "roc_curve")},
)  # fmt: skip
util: Final = SimpleNamespace(generate_id=generate_id)
errors: Final = SimpleNamespace(Error=Error, UsageError=UsageError, CommError=CommError, ConfigError=Error)
data_types: Final = SimpleNamespace(Image=Image, Histogram=Histogram, Table=Table, Audio=Audio, Html=Html)
sdk: Final = SimpleNamespace(wandb_run=SimpleNamespace(Run=Run), lib=SimpleNamespace(runid=util))


def plot_table(vega_spec_name: str, data_table: WandbTable, *unused: Any, **options: Any) -> wandb_values.WandbChart:
    """Return a chart of a table."""
    return wandb_values.chart_of(data_table)
