"""A secure sum: the server learns the sum of the clients' updates but no client's own update."""
