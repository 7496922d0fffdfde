"""Losses of FGSSL, FedGL and GPFL as a careful user writes them with PyG and torch, one a file."""
