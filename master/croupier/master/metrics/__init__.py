"""Metrics for Prometheus: counted events, and values that are read from the state."""
