"""Training of several clients at the same time; one tensor dimension indexes the clients."""
