"""Differentially private gradients: each example clipped, the sum noised."""
