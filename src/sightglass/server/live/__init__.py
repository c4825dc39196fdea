"""The socket of live streams: who looks, at what, and how far each has come."""
