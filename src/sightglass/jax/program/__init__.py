"""Logs as marks in programs: the primitive, and the walks that find, move and answer them."""
