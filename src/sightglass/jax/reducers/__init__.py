"""Reducers that run inside compiled programs, on the device."""
