"""Checks of uploads: the server accepts each upload or refuses it with a reason."""
