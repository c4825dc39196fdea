"""What the machine of a run has to do: processors, memory, disk, network, GPUs.

psutil and NVIDIA's library are asked, where they are installed (`sightglass[system]`). Each part is asked by itself,
and given up when it fails: containers hide some, and machines without a GPU have no library for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Final

EVERY_S: Final = 10.0  # a sample takes less than a millisecond: a ten-thousandth of a core
SHORT_S: Final = 1.0  # a run that ends earlier after its last sample has nothing to add

Numbers = Iterator[tuple[str, float]]


class MachineMetrics:
    """Samples the machine from time to time, as long as somebody wants the numbers."""

    def __init__(self, take: Callable[[Mapping[str, float]], None], *, wanted: Callable[[], bool]) -> None:
        """Load nothing yet.

        Args:
            take: Gets the numbers of each sample, by name, on the thread of `tick`.
            wanted: Whether to sample now.
        """
        self._take = take
        self._wanted = wanted
        self._parts: list[Callable[[float], Numbers]] | None = None
        self._sampled_s = self._now_s = 0.0
        self._counts: dict[str, tuple[float, float]] = {}

    def tick(self, now_s: float) -> None:
        """Sample, if it is time."""
        self._now_s = now_s
        if self._parts is None:
            if self._wanted():
                self._parts = [*_of_psutil(self._rate), *_of_nvidia()]
                self._sample(now_s)  # a rate, such as the use of a processor, needs a beginning
        elif now_s - self._sampled_s >= EVERY_S:
            self._take(self._sample(now_s))

    def close(self) -> None:
        """Sample for the last time."""
        if self._parts and self._now_s - self._sampled_s >= SHORT_S:
            self._take(self._sample(self._now_s))

    def _sample(self, now_s: float) -> dict[str, float]:
        self._sampled_s = now_s
        found: dict[str, float] = {}
        for part in tuple(self._parts or ()):
            try:
                found.update(part(now_s))
            except Exception:  # noqa: BLE001  psutil and NVIDIA raise what they like; the other parts go on
                assert self._parts is not None
                self._parts.remove(part)
        return found

    def _rate(self, name: str, count: float, now_s: float) -> Numbers:
        """Yield by how much a count has grown each second since it was last given, in millions."""
        before, at_s = self._counts.get(name, (count, now_s))
        self._counts[name] = count, now_s
        if now_s > at_s:
            yield name, max(0.0, count - before) / (now_s - at_s) / 1e6


Rate = Callable[[str, float, float], Numbers]


def _of_psutil(rate: Rate) -> list[Callable[[float], Numbers]]:
    try:
        import psutil

        process = psutil.Process()
    except Exception:  # noqa: BLE001  a library that is broken is as good as one that is not installed
        return []

    def processors(now_s: float) -> Numbers:
        yield "cpu_percent", psutil.cpu_percent(None)
        yield "process_cpu_percent", process.cpu_percent(None)

    def memory(now_s: float) -> Numbers:
        yield "memory_percent", psutil.virtual_memory().percent
        yield "process_memory_gb", process.memory_info().rss / 1e9

    def disk_space(now_s: float) -> Numbers:
        yield "disk_percent", psutil.disk_usage(".").percent

    def disk(now_s: float) -> Numbers:
        counts = psutil.disk_io_counters()
        yield from rate("disk_read_mb_s", counts.read_bytes, now_s)
        yield from rate("disk_write_mb_s", counts.write_bytes, now_s)

    def network(now_s: float) -> Numbers:
        counts = psutil.net_io_counters()
        yield from rate("network_received_mb_s", counts.bytes_recv, now_s)
        yield from rate("network_sent_mb_s", counts.bytes_sent, now_s)

    return [processors, memory, disk_space, disk, network]


def _of_nvidia() -> list[Callable[[float], Numbers]]:
    try:
        import pynvml as nvml

        nvml.nvmlInit()
        handles = {i: nvml.nvmlDeviceGetHandleByIndex(i) for i in _visible(nvml.nvmlDeviceGetCount())}
    except Exception:  # noqa: BLE001  no library, no driver, or none that this process may use
        return []

    def utilization(now_s: float) -> Numbers:
        for i, handle in handles.items():
            yield f"gpu{i}_percent", nvml.nvmlDeviceGetUtilizationRates(handle).gpu

    def memory(now_s: float) -> Numbers:
        for i, handle in handles.items():
            info = nvml.nvmlDeviceGetMemoryInfo(handle)
            yield f"gpu{i}_memory_percent", 100 * info.used / info.total

    def power(now_s: float) -> Numbers:
        for i, handle in handles.items():
            yield f"gpu{i}_power_w", nvml.nvmlDeviceGetPowerUsage(handle) / 1e3

    def temperature(now_s: float) -> Numbers:
        for i, handle in handles.items():
            yield f"gpu{i}_celsius", nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)

    return [utilization, memory, power, temperature]


def _visible(n: int) -> list[int]:
    """Return the numbers of the GPUs that this process may use; of all, where they are not named by numbers."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return list(range(n))
    parts = [part.strip() for part in named.split(",") if part.strip()]
    if named.strip() == "-1":
        return []
    return [int(part) for part in parts if int(part) < n] if all(map(str.isdecimal, parts)) else list(range(n))
