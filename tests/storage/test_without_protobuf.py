"""Record files of all dialects are written, read and exported where the protobuf runtime cannot be imported."""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

FIXTURES = Path(__file__).parent / "fixtures"
PROGRAM = """
    import sys
    sys.modules["google.protobuf"] = None

    from pathlib import Path
    import numpy as np
    import sightglass as sg

    folder, theirs = Path(sys.argv[1]), Path(sys.argv[2])
    with sg.init("ours", dir=folder) as run:
        for step in range(5):
            run.log({"loss": step / 2, "kernel": sg.Tensor(np.full((2, 3), step, np.float32))}, step=step)
    directory = next(folder.glob("ours-*"))
    for form in ("tensorboard", "mindspore"):
        sg.open(directory).export(form, out=folder / form)
    for path in (directory, folder / "tensorboard", folder / "mindspore"):
        with sg.open(path) as opened:
            series = opened.series("loss")
            assert series.columns().values.tolist() == [0.0, 0.5, 1.0, 1.5, 2.0], path
            assert opened.series("kernel").at(3, "[1, :]").tolist() == [3.0, 3.0, 3.0], path
    for path in theirs.iterdir():
        with sg.open(path) as opened:
            for tag in set(opened.tags()) - {"sound"}:  # four bytes, which are no sound
                assert len(opened.series(tag).columns()) == len(opened.series(tag)) > 0
"""


def test_no_part_of_storage_needs_the_protobuf_runtime(tmp_path: Path) -> None:
    for name in ("mindspore", "tensorflow", "tensorboardx"):
        (tmp_path / "theirs" / name).mkdir(parents=True)
        file = "events.summary.1700000000.0.host_MS" if name == "mindspore" else "events.out.tfevents.1700000000.host"
        shutil.copyfile(FIXTURES / f"{name}.out.events", tmp_path / "theirs" / name / file)
    program = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(tmp_path), str(tmp_path / "theirs")]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
