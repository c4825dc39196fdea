"""Alerts: what a run, or somebody who watches runs, tells people; and how that is delivered."""
