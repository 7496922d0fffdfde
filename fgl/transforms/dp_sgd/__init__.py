"""Differentially private gradients: clipped for each example, with noise on the sum."""
