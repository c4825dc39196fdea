"""Keeping records in files, and reading them back; other people's files too."""
