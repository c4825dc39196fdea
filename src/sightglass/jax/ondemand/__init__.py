"""Query the logs of a compiled step while it runs. Begin reading at `live`."""
