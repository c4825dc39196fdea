"""The evaluation of queries on a run's events, within the run's budget."""
