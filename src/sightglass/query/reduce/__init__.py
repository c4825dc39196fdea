"""The reducers of queries: one table, and what all reducers have in common."""
