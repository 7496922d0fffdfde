"""Checkpoints of a run: what is saved, and how it is read again."""
