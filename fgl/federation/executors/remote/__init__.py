"""Executor of remote clients, which run on their own computers."""
