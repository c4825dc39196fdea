"""The side of the run: it takes events in, evaluates queries, applies commands, and serves clients."""
