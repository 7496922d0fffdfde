"""Clients on machines of their own."""
