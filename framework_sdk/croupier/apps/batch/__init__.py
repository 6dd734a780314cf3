"""`croupier batch`: the tasks of a file on the cluster, in the order of their dependencies."""
