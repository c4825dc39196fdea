"""Fuzz one target: `python -m tests.fuzz.fuzzer TARGET` and libFuzzer's options. Needs atheris; see `campaign`."""

from __future__ import annotations

import shlex
import sys
import warnings

import atheris  # type: ignore[import-not-found,unused-ignore]

with atheris.instrument_imports(include=["sightglass"]):
    from .targets import PLANTED, TARGETS

if __name__ == "__main__":
    name = sys.argv.pop(1)
    sys.argv[0] = shlex.join([sys.executable, "-m", "tests.fuzz.fuzzer", name])  # libFuzzer starts itself to merge
    warnings.simplefilter("error")  # as in the tests
    atheris.Setup(sys.argv, ({**TARGETS, **PLANTED}[name]).run)
    atheris.Fuzz()
