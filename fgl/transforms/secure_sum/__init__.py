"""A secure sum: the server learns the sum of the clients' updates, but no single update."""
