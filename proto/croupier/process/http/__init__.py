"""The HTTP server beside each daemon."""
