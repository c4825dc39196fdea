"""From the calls of a training to files: recording, writing, compaction."""
