"""Parts of every daemon and command: flags, logs, HTTP, signals, clock, queues."""
