"""Several runs that answer as one: fleets, and the ranks of one program."""
