"""A whole cluster on this machine: a real master and real agents, as child processes."""
