"""What a server lets in, and why not the rest."""
