"""Readers of public traces. The files are not part of Croupier; each reader names their source."""
