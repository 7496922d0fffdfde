"""Differentially private gradients: each example's gradient is clipped, and the sum has noise."""
