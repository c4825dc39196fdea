"""What a process has of its system: threads, clocks, processes of one program, private files, certificates."""
