"""`croupier run`: a command, or many copies of it, on the cluster and its output here."""
