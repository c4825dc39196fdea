"""Queries: plain data that says what to ask, and the one evaluator that answers it."""
