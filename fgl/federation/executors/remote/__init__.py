"""Remote clients, on their own machines."""
