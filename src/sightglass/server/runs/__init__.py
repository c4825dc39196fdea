"""The runs that the page shows: found in folders and among the live ones, read no further than needed."""
