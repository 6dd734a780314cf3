"""Commands that run beside a live task, in its sandbox and with its isolation."""
