"""Write what this version leaves behind into `stored/VERSION`: `python -m tests.compatibility.make`."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

import sightglass as sg
from sightglass.storage.format import index

from . import corpus


def main() -> int:
    """Write it, unless it is there: a release is stored once."""
    folder = corpus.STORED / sg.__version__
    if folder.exists() and sys.argv[1:] != ["--again"]:
        print(f"{folder} is there. Before its release, write it --again")
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as made:
        corpus.record(Path(made))
        shutil.copytree(made, folder)
    for path in folder.glob("*/run*.json"):  # what says where this was done is not part of the format
        path.write_text(path.read_text().replace(str(Path(__file__).parents[2]), "/src").replace(made, "/runs"))
    corpus.write_small(folder)
    index.MIN_FRAMES = 1  # readers leave an index beside each segment
    expected = {run: corpus.read(folder / run) for run in corpus.RUNS}
    kinds = {
        tag: value.value if isinstance(value, sg.Tensor | sg.Text) else value for tag, value in corpus.KINDS.items()
    }
    logged = {f"kinds/{name}": corpus.told(value) for name, value in kinds.items()}
    for tag, value in logged.items():
        found = expected["run"]["series"][tag]["values"][0][0]
        assert found == value, f"{tag}: logged {value}, read {found}"
    (folder / "expected.json").write_text(json.dumps(expected, separators=(",", ":")) + "\n")
    (folder / "wire.json").write_text(json.dumps(corpus.wire(), indent=0) + "\n")
    n_bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{folder}: {n_bytes / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
