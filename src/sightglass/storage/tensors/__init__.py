"""Looking into tensors: parts of them, statistics, differences, histograms, searches."""
