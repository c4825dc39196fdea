"""Callbacks for training loops of other libraries: `lightning`, `huggingface` and `keras`, each with one class.

All callbacks observe the same events: "batch" after each step, "epoch", "validation" and "checkpoint". They close the
groups of "batch" at the end of each epoch, watch the model, and end the training when a client stops the run.
"""
