"""Checkpoints of a run, and the functions that save and load them."""
