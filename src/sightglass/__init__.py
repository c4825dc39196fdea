"""Ask a training run anything while it runs.

The names below are loaded when they are first used, so that importing sightglass costs a training process nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .core.process import current_run

__version__ = "0.2.0"

_MODULES = {
    "init": "training.process_runs",
    "Run": "training.run",
    "Limits": "training.options",
    "Ranks": "training.options",
    "Files": "training.options",
    "Facts": "training.options",
    "adopt": "trackers.wandb",
    "on": "query.query",
    "Query": "query.query",
    "fn": "query.tracer",
    "parse": "query.parser",
    "runs": "client.discover",
    "fleet": "client.many.fleet",
    "Fleet": "client.many.fleet",
    "FleetReport": "client.many.fleet",
    "connect": "client.discover",
    "RunInfo": "client.describe",
    "open": "client.many.folder",
    "RecordedRun": "client.recorded.run",
    "RecordedRuns": "client.many.folder",
    "diagnose": "diagnosis.diagnose",
    "Diagnosis": "diagnosis.diagnose",
    "Finding": "diagnosis.findings",
    "save_page": "server.page_file.save",
    "PageFile": "server.page_file.save",
    "Series": "storage.read.recording",
    "Annotations": "storage.object_file",
    "RemoteRun": "client.run",
    "RankGroup": "client.many.rank_group",
    "Stream": "client.streams.stream",
    "Answer": "client.streams.answer",
    "stream": "client.streams.own_data",
    "plot": "views",
    "Record": "core.columns",
    "Restart": "core.columns",
    "Tensor": "core.values",
    "Histogram": "core.values",
    "Image": "core.values",
    "Images": "core.values",
    "Figure": "core.values",
    "Text": "core.values",
    "Audio": "core.values",
    "Table": "core.table",
    "SightglassError": "core.errors",
    "QueryError": "core.errors",
    "QuerySyntaxError": "core.errors",
    "RefusedQueryError": "core.errors",
    "UnreadableError": "core.errors",
    "DeadlockError": "core.errors",
    "RefusedFunctionError": "core.errors",
    "PriceError": "core.errors",
    "EvaluationError": "core.errors",
    "CommandError": "core.errors",
    "RefusedError": "core.errors",
    "UnconfirmedError": "core.errors",
    "RunNotFoundError": "core.errors",
    "RunLostError": "core.errors",
    "TransportError": "core.errors",
    "WireError": "core.errors",
    "StorageError": "core.errors",
    "DamagedError": "core.errors",
    "AlertError": "core.errors",
    "FigureError": "core.errors",
    "FigureErrors": "core.errors",
    "UnsendableError": "core.errors",
    "ViewError": "core.errors",
    "MissingExtraError": "core.errors",
    "UnknownNameError": "core.errors",
    "LogError": "core.errors",
    "WorkerLostError": "core.errors",
}

__all__ = sorted([*_MODULES, "__version__"])  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'sightglass' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"sightglass.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__]


# A run shows a card in a notebook, and a card is a client. Clients are above runs, so the link is made here.
current_run.connect_with(lambda run: __getattr__("connect")(run))  # noqa: PLW0108  loads the client when called


if TYPE_CHECKING:
    from .client.describe import RunInfo as RunInfo
    from .client.discover import connect as connect
    from .client.discover import runs as runs
    from .client.many.fleet import Fleet as Fleet
    from .client.many.fleet import FleetReport as FleetReport
    from .client.many.fleet import fleet as fleet
    from .client.many.folder import RecordedRuns as RecordedRuns
    from .client.many.folder import open as open
    from .client.many.rank_group import RankGroup as RankGroup
    from .client.recorded.run import RecordedRun as RecordedRun
    from .client.run import RemoteRun as RemoteRun
    from .client.streams.answer import Answer as Answer
    from .client.streams.own_data import stream as stream
    from .client.streams.stream import Stream as Stream
    from .core.columns import Record as Record
    from .core.columns import Restart as Restart
    from .core.errors import AlertError as AlertError
    from .core.errors import CommandError as CommandError
    from .core.errors import DamagedError as DamagedError
    from .core.errors import DeadlockError as DeadlockError
    from .core.errors import EvaluationError as EvaluationError
    from .core.errors import FigureError as FigureError
    from .core.errors import FigureErrors as FigureErrors
    from .core.errors import LogError as LogError
    from .core.errors import MissingExtraError as MissingExtraError
    from .core.errors import PriceError as PriceError
    from .core.errors import QueryError as QueryError
    from .core.errors import QuerySyntaxError as QuerySyntaxError
    from .core.errors import RefusedError as RefusedError
    from .core.errors import RefusedFunctionError as RefusedFunctionError
    from .core.errors import RefusedQueryError as RefusedQueryError
    from .core.errors import RunLostError as RunLostError
    from .core.errors import RunNotFoundError as RunNotFoundError
    from .core.errors import SightglassError as SightglassError
    from .core.errors import StorageError as StorageError
    from .core.errors import TransportError as TransportError
    from .core.errors import UnconfirmedError as UnconfirmedError
    from .core.errors import UnknownNameError as UnknownNameError
    from .core.errors import UnreadableError as UnreadableError
    from .core.errors import UnsendableError as UnsendableError
    from .core.errors import ViewError as ViewError
    from .core.errors import WireError as WireError
    from .core.errors import WorkerLostError as WorkerLostError
    from .core.table import Table as Table
    from .core.values import Audio as Audio
    from .core.values import Figure as Figure
    from .core.values import Histogram as Histogram
    from .core.values import Image as Image
    from .core.values import Images as Images
    from .core.values import Tensor as Tensor
    from .core.values import Text as Text
    from .diagnosis.diagnose import Diagnosis as Diagnosis
    from .diagnosis.diagnose import diagnose as diagnose
    from .diagnosis.findings import Finding as Finding
    from .query.parser import parse as parse
    from .query.query import Query as Query
    from .query.query import on as on
    from .query.tracer import fn as fn
    from .server.page_file.save import PageFile as PageFile
    from .server.page_file.save import save_page as save_page
    from .storage.object_file import Annotations as Annotations
    from .storage.read.recording import Series as Series
    from .trackers.wandb import adopt as adopt
    from .training.options import Facts as Facts
    from .training.options import Files as Files
    from .training.options import Limits as Limits
    from .training.options import Ranks as Ranks
    from .training.process_runs import init as init
    from .training.run import Run as Run
    from .views import plot as plot
