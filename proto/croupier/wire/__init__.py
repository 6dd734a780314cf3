"""Conversion between the model and the messages of `croupier.v1`, each direction once."""
