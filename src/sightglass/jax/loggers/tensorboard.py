"""Logs into TensorBoard's event files."""

from __future__ import annotations

import os
from pathlib import Path

from sightglass.storage.record_sink import RecordSink
from sightglass.storage.tensorboard_log import TensorBoard

from .record_sink import SinkLogger


class TensorBoardLogger(SinkLogger):
    """Writes event files into `path`; named lanes have a subdirectory each.

    Numbers become float32, and steps integers; arrays are written as tensors. TensorBoard knows only one step: other
    step tracks are omitted. The directory may contain other event files: TensorBoard shows all of them as one run.

    Args:
        path: A log directory, created at the first log.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        super().__init__()

    def open(self, name: str) -> RecordSink:
        """Open the event file of a lane."""
        return TensorBoard(self._path / name)
