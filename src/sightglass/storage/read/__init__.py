"""From files to series: recordings, their parts, what is seen of them, and whether they are damaged."""
