"""What Prometheus reads: events that are counted, and values that are read from the state."""
