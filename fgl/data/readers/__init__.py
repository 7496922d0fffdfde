"""Readers of files: one format a file, and what they share."""
