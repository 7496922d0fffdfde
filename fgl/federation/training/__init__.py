"""Local training: a loss, an optimiser and minibatches."""
