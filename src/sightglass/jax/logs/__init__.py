"""What was logged, on the host: logdicts, how they are joined, reduced, read and printed."""
