"""Errors in the middle of the real code, at random calls: whatever fails inside a round costs nobody else anything."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from sightglass.client.connection import Connection
from sightglass.client.reconnect import Reconnector
from sightglass.client.session import Session
from sightglass.storage.write.column_builder import ColumnBuilder
from sightglass.storage.write.writer import RecordWriter
from sightglass.training.serving.client_service import ClientService
from sightglass.training.serving.client_subscriptions import ClientSubscriptions
from sightglass.training.serving.io_loop import IoLoop

from .world import World

PLACES: tuple[tuple[type, str], ...] = (
    (ClientService, "_dispatch"), (ClientService, "flush"), (ClientSubscriptions, "flush"),
    (IoLoop, "_take_in"), (IoLoop, "_send"),
    (RecordWriter, "_collect"), (RecordWriter, "_pass_on"), (ColumnBuilder, "log"), (ColumnBuilder, "rows"),
    (Connection, "_dispatch"), (Connection, "_flush"), (Reconnector, "_try"), (Session, "resume"),
)  # fmt: skip
"""What is called within rounds; a call fails before it does anything."""


class InternalError(Exception):
    """An error that the simulation raises inside the real code."""


@contextlib.contextmanager
def internal_errors(world: World, probability: float) -> Iterator[None]:
    """Let each of these calls fail with a probability."""
    with contextlib.ExitStack() as stack:
        for place, name in PLACES if probability else ():
            stack.enter_context(mock.patch.object(place, name, _failing(world, getattr(place, name), probability)))
        yield


def _failing(world: World, call: Any, probability: float) -> Any:
    def failing(*args: Any, **options: Any) -> Any:
        if world.in_round and world.random.random() < probability:
            world.note(f"{call.__qualname__} fails")
            raise InternalError(call.__qualname__)
        return call(*args, **options)

    return failing
