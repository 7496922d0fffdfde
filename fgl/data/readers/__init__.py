"""Readers of files: one module per format, and shared helpers."""
