"""Checks of uploads: the server accepts an upload, or refuses it with a reason."""
