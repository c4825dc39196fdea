"""What `import sightglass` costs a program that may never use it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

ROUNDS = 9
TIMED = "import time; t = time.perf_counter(); {}; print(time.perf_counter() - t)"
LOADED = """
import sys; before = set(sys.modules); import sightglass
roots = {name.partition('.')[0] for name in set(sys.modules) - before}
print(len(roots - {'sightglass'} - set(sys.stdlib_module_names)))
"""


def measure() -> Iterator[tuple[str, float, str, float | None]]:
    best = min(float(_run(TIMED.format("import sightglass"))) for _ in range(ROUNDS))
    bare = min(float(_run(TIMED.format("pass"))) for _ in range(ROUNDS))
    yield "import sightglass, above bare Python", (best - bare) * 1e3, "ms", 40
    yield "  third-party modules loaded", float(_run(LOADED)), "", 0
    first = min(float(_run(TIMED.format("import sightglass; sightglass.init"))) for _ in range(ROUNDS))
    yield "  and with sightglass.init at hand", (first - bare) * 1e3, "ms", None


def _run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
