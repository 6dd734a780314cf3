"""Encryption of tasks' secrets: sealed when an ACCEPT arrives, opened when a LAUNCH leaves."""
