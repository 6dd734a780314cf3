"""What every daemon and command is made of: flags, logs, HTTP, signals, clock, queues."""
