"""Values of the program's own, read without trust: as numbers, texts, arrays and containers of these."""
