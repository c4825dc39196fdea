"""A compiled step that clients of a run ask while it runs. `step` is where to begin reading."""
