"""A secure sum: the server learns the sum of the clients' updates, and no single update."""
