"""Reducers that run within programs, on the device."""
