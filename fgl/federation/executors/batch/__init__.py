"""Clients as a dimension of tensors."""
