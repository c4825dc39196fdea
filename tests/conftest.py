"""What all tests share: a runtime directory and an environment of their own."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# Without it, some releases of jaxlib compute wrong numbers on CPU.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_experimental_ynn_fusion_type=")
os.environ.setdefault("KERAS_BACKEND", "torch")  # what is installed; Keras looks for another one by default


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Give each test a registry of its own, at a path short enough for sockets, and a folder to write into."""
    path = Path(tempfile.mkdtemp(prefix="sg", dir="/tmp" if os.name == "posix" else None))
    monkeypatch.setenv("SIGHTGLASS_RUNTIME_DIR", str(path))
    for name in ("SIGHTGLASS_MODE", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    yield path
    shutil.rmtree(path, ignore_errors=True)
