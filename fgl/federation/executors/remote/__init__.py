"""Executor of remote clients; each client runs on its own computer."""
