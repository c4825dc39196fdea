"""What the machine has to do is sampled beside the training, and recorded as series."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import SimpleNamespace

import pytest
from tests.waiting import wait_until

import sightglass as sg
from sightglass.server.runs.details import Details, read_inside
from sightglass.storage.read.recording import Recording
from sightglass.training import facts
from sightglass.training.facts import EVERY_S, MachineMetrics

OF_MACHINE = {
    "cpu_percent", "process_cpu_percent", "memory_percent", "process_memory_gb", "disk_percent", "disk_read_mb_s",
    "disk_write_mb_s", "network_received_mb_s", "network_sent_mb_s",
}  # fmt: skip


@pytest.fixture
def samples() -> list[Mapping[str, float]]:
    return []


def fake_psutil(monkeypatch: pytest.MonkeyPatch, **instead: object) -> SimpleNamespace:
    """A machine that has read 1 MB more at each look."""
    looks = iter(range(1, 1_000))
    fake = SimpleNamespace(
        cpu_percent=lambda interval: 50.0, virtual_memory=lambda: SimpleNamespace(percent=25.0),
        disk_usage=lambda path: SimpleNamespace(percent=10.0),
        Process=lambda: SimpleNamespace(cpu_percent=lambda _: 100.0, memory_info=lambda: SimpleNamespace(rss=2e9)),
        disk_io_counters=lambda: SimpleNamespace(read_bytes=1e6 * next(looks), write_bytes=0),
        net_io_counters=lambda: SimpleNamespace(bytes_recv=0, bytes_sent=0),
    )  # fmt: skip
    fake.__dict__.update(instead)
    monkeypatch.setitem(sys.modules, "psutil", fake)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    return fake


def test_a_machine_is_sampled_from_time_to_time(
    monkeypatch: pytest.MonkeyPatch, samples: list[Mapping[str, float]]
) -> None:
    fake_psutil(monkeypatch)
    metrics = MachineMetrics(samples.append, wanted=lambda: True)
    for now_s in (100.0, 100.5, 100.0 + EVERY_S, 101.0 + EVERY_S, 100.0 + 2 * EVERY_S):
        metrics.tick(now_s)
    assert len(samples) == 2
    assert set(samples[0]) == OF_MACHINE
    assert samples[0]["disk_read_mb_s"] == samples[1]["disk_read_mb_s"] == 1 / EVERY_S
    assert samples[0]["process_memory_gb"] == 2.0
    metrics.close()
    assert len(samples) == 2  # nothing has passed since
    metrics.tick(102.0 + 2 * EVERY_S)
    metrics.close()
    assert len(samples) == 3


def test_nothing_is_sampled_before_it_is_wanted(
    monkeypatch: pytest.MonkeyPatch, samples: list[Mapping[str, float]]
) -> None:
    fake_psutil(monkeypatch)
    metrics = MachineMetrics(samples.append, wanted=lambda: False)
    for now_s in range(100):
        metrics.tick(float(now_s))
    metrics.close()
    assert not samples


def test_a_part_that_fails_is_given_up(monkeypatch: pytest.MonkeyPatch, samples: list[Mapping[str, float]]) -> None:
    fake_psutil(monkeypatch, disk_io_counters=lambda: None, virtual_memory=lambda: 1 / 0)
    metrics = MachineMetrics(samples.append, wanted=lambda: True)
    for now_s in (0.0, EVERY_S, 2 * EVERY_S):
        metrics.tick(now_s)
    expected = OF_MACHINE - {"disk_read_mb_s", "disk_write_mb_s", "memory_percent", "process_memory_gb"}
    assert [set(sample) for sample in samples] == [expected, expected]


@pytest.mark.parametrize(
    ("visible", "chosen"), [(None, [0, 1]), ("1", [1]), ("", []), ("0,7", [0]), ("GPU-1f", [0, 1]), ("-1", [])]
)
def test_gpus_that_the_process_may_use_are_sampled(
    visible: str | None, chosen: list[int], monkeypatch: pytest.MonkeyPatch, samples: list[Mapping[str, float]]
) -> None:
    fake_psutil(monkeypatch)
    nvml = SimpleNamespace(
        nvmlInit=lambda: None, nvmlDeviceGetCount=lambda: 2, nvmlDeviceGetHandleByIndex=lambda i: i,
        nvmlDeviceGetUtilizationRates=lambda i: SimpleNamespace(gpu=90 + i),
        nvmlDeviceGetMemoryInfo=lambda i: SimpleNamespace(used=1, total=4),
        nvmlDeviceGetPowerUsage=lambda i: 300_000, nvmlDeviceGetTemperature=lambda i, kind: 60, NVML_TEMPERATURE_GPU=0,
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    metrics = MachineMetrics(samples.append, wanted=lambda: True)
    metrics.tick(0.0)
    metrics.tick(EVERY_S)
    gpus = {name: number for name, number in samples[0].items() if name.startswith("gpu")}
    assert gpus == {
        name: number
        for i in chosen
        for name, number in {
            f"gpu{i}_percent": 90 + i, f"gpu{i}_memory_percent": 25, f"gpu{i}_power_w": 300, f"gpu{i}_celsius": 60,
        }.items()
    }  # fmt: skip


def test_without_the_libraries_nothing_is_sampled(
    monkeypatch: pytest.MonkeyPatch, samples: list[Mapping[str, float]]
) -> None:
    for name in ("psutil", "pynvml"):
        monkeypatch.setitem(sys.modules, name, None)
    metrics = MachineMetrics(samples.append, wanted=lambda: True)
    for now_s in (0.0, EVERY_S):
        metrics.tick(now_s)
    assert samples == [{}]


def test_a_run_records_its_machine_as_series(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psutil")
    monkeypatch.delenv("SIGHTGLASS_FACTS")
    monkeypatch.setattr(facts, "EVERY_S", 0.1)
    with sg.init("quiet", facts=sg.Facts(program=False)) as quiet, sg.init("x", facts=sg.Facts(program=False)) as run:
        run.log({"loss": 1.0}, step=-5)
        wait_until(
            lambda: list(run.directory.glob("*.sgr")) and "system.cpu_percent" in opened(run).tags(),
            "a sample of the machine",
        )
    assert not quiet.directory.exists()
    old = opened(run)
    series = old.series("system.process_memory_gb")
    assert series[0].value > 0.01
    events = old.describe().events
    assert events["log"].n_events == 1
    assert set(events["system"].observables) >= {"cpu_percent", "memory_percent"}
    assert next(iter(old.stream("system.cpu_percent"))).value >= 0
    assert read_inside(Details(), Recording(run.directory)).last_step == -5  # not a time


def opened(run: sg.Run) -> sg.RecordedRun:
    found = sg.open(run.directory)
    assert isinstance(found, sg.RecordedRun)
    return found
