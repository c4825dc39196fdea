"""Loggers: write the logs of JAX programs to files, runs, W&B, TensorBoard or the terminal, one lane for each seed."""

from sightglass.jax.loggers.console import ConsoleLogger as ConsoleLogger
from sightglass.jax.loggers.logger import Logger as Logger
from sightglass.jax.loggers.logger import LoggerState as LoggerState
from sightglass.jax.loggers.logger import MultiLogger as MultiLogger
from sightglass.jax.loggers.record_sink import RunLogger as RunLogger
from sightglass.jax.loggers.record_sink import SaveLogger as SaveLogger
from sightglass.jax.loggers.record_sink import SinkLogger as SinkLogger
from sightglass.jax.loggers.record_sink import TensorBoardLogger as TensorBoardLogger
from sightglass.jax.loggers.record_sink import WandBLogger as WandBLogger
from sightglass.storage.delivery_queue import RecordSink as RecordSink
