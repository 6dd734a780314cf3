"""Copies of a store: `croupier-master backup` makes one, and `croupier-master restore` reads it."""
