"""Training of several clients at the same time; clients are a dimension of the tensors."""
