"""Print every measurement, or those that are named."""

from __future__ import annotations

import importlib
import os
import platform
import sys
import tempfile

from bench import speed

CLAIMS = (
    "observe", "log", "compaction", "clients", "latency", "arrays", "read", "folders", "slices", "foreign",
    "import_time", "views", "page_server", "page", "notebook",
    "code", "jax_log", "jax_trace", "jax_run", "jax_live", "torch_watch", "figures",
)  # fmt: skip
NAMED_ONLY = ("suite", "soak", "harm")  # all tests, for many minutes; half an hour; nasty queries, for many minutes


def main(names: list[str]) -> int:
    """Print a table of the measurements; those above their targets are marked."""
    known = (*CLAIMS, *NAMED_ONLY)
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"Unknown: {', '.join(unknown)}. Known: {', '.join(known)}", file=sys.stderr)
        return 2
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {speed.index()}")
    print(f"{'':54}{'measured':>12}{'target':>10}")
    with tempfile.TemporaryDirectory(prefix="sgb", dir="/tmp" if os.name == "posix" else None) as folder:
        os.environ["SIGHTGLASS_RUNTIME_DIR"] = folder
        for name in names or CLAIMS:
            for what, value, unit, target in importlib.import_module(f"bench.{name}").measure():
                limit = "" if target is None else f"<= {target:g}"
                over = "  over" if target is not None and value > target else ""
                shown = f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
                print(f"{what:<54}{shown:>9} {unit:<2}{limit:>10}{over}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
