"""From files to series: recordings, their files, which rows are visible, and whether files are damaged."""
