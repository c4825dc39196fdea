"""What record files are made of: frames, messages, arrays, blocks of columns, and their index."""
