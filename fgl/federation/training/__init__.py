"""Local training: a loss, an optimiser, minibatches."""
