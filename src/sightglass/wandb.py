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
from .trackers.wandb_state import WandbConfig, entries_of, variable
from .trackers.wandb_values import (
    WandbAudio,
    WandbHistogram,
    WandbHtml,
    WandbImage,
    WandbPlotly,
    WandbTable,
    chart_of,
    unkept,
    unkept_class,
)
from .training.options import Files
from .training.process_runs import init as begin
from .training.run import wiring

Run, Image, Histogram, Table = WandbRun, WandbImage, WandbHistogram, WandbTable
Audio, Html, Plotly, Config = WandbAudio, WandbHtml, WandbPlotly, WandbConfig
AlertLevel = wandb_run.AlertLevel
Error = UsageError = SightglassError
CommError = TransportError

MODES: Final = ("online", "offline", "shared", "dryrun", "run", "disabled")
RESUMES: Final = (None, False, True, "allow", "auto", "must", "never")
IN_SETTINGS: Final = {
    "project": "project", "entity": "entity", "run_name": "name", "run_id": "id", "run_group": "group",
    "run_tags": "tags", "run_notes": "notes", "run_job_type": "job_type", "mode": "mode", "root_dir": "dir",
    "resume": "resume",
}  # fmt: skip
"""What programs pass in `Settings`, by the arguments of `init`."""

_active: Final[list[WandbRun]] = []


def init(
    entity: str | None = None,
    project: str | None = None,
    dir: str | os.PathLike[str] | None = None,
    id: str | None = None,
    name: str | None = None,
    notes: str | None = None,
    tags: Sequence[str] | None = None,
    config: Any = None,
    config_exclude_keys: Sequence[str] | None = None,
    config_include_keys: Sequence[str] | None = None,
    allow_val_change: bool | None = None,
    group: str | None = None,
    job_type: str | None = None,
    mode: str | None = None,
    force: bool | None = None,
    reinit: bool | str | None = None,
    resume: bool | str | None = None,
    settings: Any = None,
    **others: Any,
) -> WandbRun:
    """Begin a run, or return the one that is active.

    The environment's `WANDB_PROJECT`, `WANDB_NAME`, `WANDB_RUN_ID`, `WANDB_DIR`, `WANDB_RUN_GROUP`, `WANDB_TAGS`,
    `WANDB_NOTES`, `WANDB_JOB_TYPE`, `WANDB_RESUME` and `WANDB_MODE` stand for arguments that are not given.

    Args:
        entity: Noted only.
        project: The folder of the run's directory.
        dir: The folder of runs.
        id: Its id, by which it is resumed; by default a new one.
        name: Its name; by default its id.
        notes: The notes of the recorded run.
        tags: The labels of the recorded run.
        config: A mapping, a namespace, flags of absl, or a file of YAML.
        config_exclude_keys: Entries of `config` to leave out.
        config_include_keys: The only entries of `config` to take.
        allow_val_change: Whether entries of the config may change later.
        group: A label, as "group: …".
        job_type: A label, as "job: …".
        mode: "disabled" makes every call a no-op; "online" and "offline" are the same here.
        force: Has no effect.
        reinit: What happens to an active run: by default it is returned; `True` or "finish_previous" ends it;
            "create_new" leaves it active beside the new one.
        resume: "allow" or `True` continues the run of this id, if there is one; "must" if there has to be one, "never"
            if there must not be.
        settings: `Settings`, or a mapping, that may have some of these arguments.
        **others: Have no effect.

    Raises:
        SightglassError: `resume` is "must" and there is no such run, or "never" and there is one.
        ValueError: `mode` or `resume` is unknown.
    """
    if others.get("sync_tensorboard") or others.get("tensorboard"):
        unkept("init(sync_tensorboard=…)", "sightglass.trackers.tensorboard has a SummaryWriter")
    if others.get("resume_from") or others.get("fork_from"):
        unkept("init(fork_from=…)", "resume continues a run by its id")
    told = settings if isinstance(settings, Mapping) else vars(settings) if settings is not None else {}
    given = {IN_SETTINGS[key]: value for key, value in told.items() if key in IN_SETTINGS}
    project = project or given.get("project") or variable("PROJECT")
    id = id or given.get("id") or variable("RUN_ID")
    name = name or given.get("name") or variable("NAME")
    mode = mode or given.get("mode") or variable("MODE") or "online"
    mode = "disabled" if os.environ.get("WANDB_DISABLED", "").lower() in ("true", "1") else mode
    resume = resume if resume is not None else given.get("resume") or variable("RESUME")
    if mode not in MODES or resume not in RESUMES:
        raise ValueError(f"Expected a mode of {MODES} and resume as one of {RESUMES}, got {mode!r} and {resume!r}")
    reinit = reinit or ("finish_previous" if "ipykernel" in sys.modules else None)
    if (active := _current()) is not None and reinit in (None, "default", "return_previous"):
        warn(f"Run {active.name!r} is active: wandb.init returns it. End it first, or pass reinit=True")
        return active
    if active is not None and reinit != "create_new":
        active.finish()
    folder = Path(dir or given.get("dir") or variable("DIR") or runs_folder())
    folder = folder / safe_name(project) if project else folder
    earlier = None if id is None else _directory(folder, id)
    if (resume == "must" and earlier is None) or (resume == "never" and earlier is not None):
        found = "there is none" if earlier is None else f"there is one: {earlier}"
        raise SightglassError(f"resume={resume!r} for run {id!r} in {folder}, and {found}")
    id = id or generate_id()
    name = name or id
    entries = {
        key: value
        for key, value in entries_of(config).items()
        if key in (config_include_keys or (key,)) and key not in (config_exclude_keys or ())
    }
    into = earlier or folder / (safe_name(f"{name}.{_id(id)}") if name != id else _id(id))
    run = begin(name, config=entries, files=Files(into=into), mode="disabled" if mode == "disabled" else None)

    def changed(changes: Mapping[str, Any]) -> None:
        run.config = {**run.config, **changes}
        wiring(run).change_config(changes)

    labels = {
        "project": project or "uncategorized", "entity": entity or given.get("entity") or variable("ENTITY"),
        "group": group or given.get("group") or variable("RUN_GROUP"),
        "job_type": job_type or given.get("job_type") or variable("JOB_TYPE"),
        "tags": tags or given.get("tags") or (variable("TAGS") or "").split(",") if variable("TAGS") else tags,
        "notes": notes or given.get("notes") or variable("NOTES"), "settings": settings,
    }  # fmt: skip
    made = WandbRun(
        run, id=id, config=WandbConfig(entries, changed, allows=bool(allow_val_change)), labels=labels,
        resumed=bool(resume) and earlier is not None and not run.disabled, ended=_forget,
    )  # fmt: skip
    if active is None or reinit != "create_new":
        _active.append(made)
    return made


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


log, define_metric, watch, unwatch = map(_of_run, ("log", "define_metric", "watch", "unwatch"))
alert, save, mark_preempting = map(_of_run, ("alert", "save", "mark_preempting"))
log_artifact, use_artifact, log_model, use_model = map(
    _of_run, ("log_artifact", "use_artifact", "log_model", "use_model")
)
link_model, restore, log_code = map(_of_run, ("link_model", "restore", "log_code"))


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
    raise AttributeError(f"module 'sightglass.wandb' has no attribute {name!r}")


Artifact = unkept_class("Artifact", "write files into run.dir")
Video = unkept_class("Video", "log its frames as pictures")
Object3D = unkept_class("Object3D", "log its points as an array")
Molecule, Graph, Classes, Api = (unkept_class(name) for name in ("Molecule", "Graph", "Classes", "Api"))
sweep = agent = controller = unkept_class("sweep", "call your function with each config")
EvalTable = WandbTable


def Settings(**settings: Any) -> SimpleNamespace:
    """Return settings for `init`; those of `IN_SETTINGS` have an effect."""
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


def plot_table(vega_spec_name: str, data_table: WandbTable, *unused: Any, **options: Any) -> wandb_values.WandbChart:
    """Return a chart of a table."""
    return chart_of(data_table)


plot: Final = SimpleNamespace(
    line=chart_of, scatter=chart_of, histogram=chart_of, bar=chart_of, plot_table=plot_table,
    line_series=wandb_values.line_series, confusion_matrix=wandb_values.confusion_matrix,
    pr_curve=unkept_class("plot.pr_curve", "log its points as wandb.Table"),
    roc_curve=unkept_class("plot.roc_curve", "log its points as wandb.Table"),
)  # fmt: skip
util: Final = SimpleNamespace(generate_id=generate_id)
errors: Final = SimpleNamespace(Error=Error, UsageError=UsageError, CommError=CommError, ConfigError=Error)
env: Final = SimpleNamespace(MODE="WANDB_MODE", PROJECT="WANDB_PROJECT", DIR="WANDB_DIR", RUN_ID="WANDB_RUN_ID")
data_types: Final = SimpleNamespace(
    Image=Image, Histogram=Histogram, Table=Table, Audio=Audio, Html=Html, Plotly=Plotly, Video=Video
)
sdk: Final = SimpleNamespace(wandb_run=SimpleNamespace(Run=Run))
