"""Print every measurement, or those that are named."""

from __future__ import annotations

import importlib
import os
import platform
import sys
import tempfile

CLAIMS = (
    "observe", "log", "compaction", "clients", "latency", "arrays", "read", "folders", "slices", "foreign",
    "import_time", "views", "page_server", "page", "notebook",
    "jax_log", "jax_trace", "jax_run", "jax_live", "torch_watch", "figures",
)  # fmt: skip


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in CLAIMS]
    if unknown:
        print(f"Unknown: {', '.join(unknown)}. Known: {', '.join(CLAIMS)}", file=sys.stderr)
        return 2
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"{'':54}{'measured':>12}{'target':>10}")
    with tempfile.TemporaryDirectory(prefix="sgb", dir="/tmp" if os.name == "posix" else None) as folder:
        os.environ["SIGHTGLASS_RUNTIME_DIR"] = folder
        for name in names or CLAIMS:
            for what, value, unit, target in importlib.import_module(f"bench.{name}").measure():
                limit = "" if target is None else f"<= {target:g}"
                over = "  over" if target is not None and value > target else ""
                print(f"{what:<54}{value:>9.3g} {unit:<2}{limit:>10}{over}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
