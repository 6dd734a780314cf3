"""`croupier run`: copies of a command on the cluster, with their output here."""
