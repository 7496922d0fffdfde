"""A secure sum: of the clients' updates the server learns the sum alone."""
