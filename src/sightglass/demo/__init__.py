"""A small training to watch: handwritten digits, a network in plain NumPy, and a run that offers all of it.

`python -m sightglass.demo.train` starts it. It is a demonstration, no part of the interface that others build on.
"""
