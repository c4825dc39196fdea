"""Fleets: sets of live runs, which later runs join."""
