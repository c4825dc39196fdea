"""Rules that watch runs: conditions, and what a run cannot tell of itself; what they find is told as alerts.

`rules` reads them from a file, `judge` decides when to tell, `journal` remembers what was told, `watcher` watches.
"""
