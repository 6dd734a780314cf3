"""Readers of public traces; the files are not part of Croupier, each reader says where."""
