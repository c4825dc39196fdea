"""Print every measurement, or those that are named."""

from __future__ import annotations

import importlib
import os
import platform
import sys
import tempfile

from bench import speed
from bench.row import Row

CLAIMS = (
    "observe", "language", "budget", "log", "summaries", "wide", "compaction", "clients", "latency", "arrays",
    "read", "folders", "many_runs", "ranks", "fleet", "hub", "hub_scale", "slices", "tensors", "foreign", "mutated",
    "import_time", "buffers", "facts", "views", "page_server", "page", "page_tasks", "page_scroll", "first_chart",
    "event_to_pixel", "growth", "watched", "strangers", "notebook", "code", "flows", "jax_log", "jax_trace", "jax_run",
    "jax_live", "jax_compile",
    "jax_one_call", "torch_watch", "figures", "guests", "neighbours", "diagnose", "mcp", "alerts",
)  # fmt: skip
NAMED_ONLY = ("suite", "soak", "harm", "hub_cluster", "classes")
# All tests, for many minutes; half an hour; nasty queries, for many minutes; 64 processes, for some minutes, as root;
# some of the tests, for some minutes.


def main(names: list[str]) -> int:
    """Print a table of the measurements; those above their targets are marked."""
    known = (*CLAIMS, *NAMED_ONLY)
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"Unknown: {', '.join(unknown)}. Known: {', '.join(known)}", file=sys.stderr)
        return 2
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {speed.line()}")
    print(f"{'':54}{'measured':>12}{'target':>10}{'  interval':>10}")
    with tempfile.TemporaryDirectory(prefix="sgb", dir="/tmp" if os.name == "posix" else None) as folder:
        os.environ["SIGHTGLASS_RUNTIME_DIR"] = folder
        for name in names or CLAIMS:
            for row in importlib.import_module(f"bench.{name}").measure():
                print(Row(*row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
