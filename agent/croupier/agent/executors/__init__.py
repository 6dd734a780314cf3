"""Executors on this agent: their streams, whichever protocol they speak."""
