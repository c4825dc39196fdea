"""Asking: find a run, connect to it, and get streams back."""
