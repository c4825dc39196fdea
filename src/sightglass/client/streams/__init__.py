"""Streams as programs read them: those of runs, those derived from others, and those of own data."""
