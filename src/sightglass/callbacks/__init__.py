"""Callbacks for the loops that others write: `lightning`, `huggingface`, `keras`; each a module with one class.

All of them announce the same events: "batch" behind each step, "epoch", "validation" and "checkpoint"; they close the
groups of "batch" at the end of an epoch, watch the model, and end the training when a client stops the run.
"""
