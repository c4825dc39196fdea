"""Logs in traced programs: the primitive, and the walks that find and replace it."""
