"""Checkpoints of a run: functions that save and load them."""
