"""What of a run is saved, and how it is read again."""
