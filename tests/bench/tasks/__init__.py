"""Short tasks, beside `xargs -P` and other systems: `make bench-tasks`. See `__main__`."""
