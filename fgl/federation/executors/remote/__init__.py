"""Executor of remote clients, each of which runs on its own computer."""
