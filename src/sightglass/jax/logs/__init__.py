"""Logdicts: logged values by tag, and how they are concatenated, reduced, read and printed."""
