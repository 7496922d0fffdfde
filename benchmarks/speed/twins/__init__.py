"""Losses of FedEgo, FedGL, FGSSL and GPFL as one writes them with PyG and torch, one a file."""
