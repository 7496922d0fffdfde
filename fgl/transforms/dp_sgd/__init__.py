"""Differentially private gradients: gradients of examples are clipped, and noise is added."""
