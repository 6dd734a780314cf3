"""A private authority in a directory, the certificates that it signs, and their contents."""
