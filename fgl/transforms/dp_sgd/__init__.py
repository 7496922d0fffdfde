"""Differentially private gradients: each example's gradient is clipped; noise is added."""
