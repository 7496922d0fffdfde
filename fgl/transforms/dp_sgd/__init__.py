"""Differentially private gradients: each example's gradient is clipped, and noise is added."""
