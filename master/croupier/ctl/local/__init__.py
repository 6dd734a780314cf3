"""A cluster on this machine: a master and agents as child processes."""
