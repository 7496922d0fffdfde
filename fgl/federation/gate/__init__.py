"""Checks of uploads: which ones a server accepts, and why it refuses the others."""
