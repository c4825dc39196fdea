"""Recorded runs, which answer the same queries as live ones."""
