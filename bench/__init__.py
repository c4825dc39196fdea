"""Measurements: one file per claim of `docs/performance.md`, each a ratio against a yardstick taken in the same run.

`python -m bench` prints all of them beside their targets; `python -m bench observe latency` prints some. They decide
nothing: machines are shared and noisy, so read a factor under 2 as no difference.
"""
