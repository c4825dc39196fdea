"""The clients of a run: what they ask, what they are sent, and the thread that serves them."""
