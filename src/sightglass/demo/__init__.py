"""A small training to watch: handwritten digits, a network in plain NumPy, and a run that observes all of it.

`python -m sightglass.demo.train` starts it. It is a demonstration, not part of the public API.
"""
