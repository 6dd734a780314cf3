"""TLS of a daemon: its flags, and certificates that are renewed while it runs."""
