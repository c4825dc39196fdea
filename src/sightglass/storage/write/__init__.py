"""From the calls of a training to files: columns, segments, compaction."""
