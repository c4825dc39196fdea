"""Callbacks for training loops of other libraries: `lightning`, `huggingface` and `keras`, each with one class.

All callbacks observe the same events: "batch" after each step, "epoch", "validation" and "checkpoint". They close the
groups of "batch" at the end of each epoch, watch the model, and end the training when a client stops the run.

The class is called `SightglassCallback` in all three, although a public name of Sightglass otherwise exists once. Each
is a subclass of its library's own callback, a program imports that of its library, and people look for the tool's name
there, as they look for `WandbCallback`.
"""
