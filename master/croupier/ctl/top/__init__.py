"""`croupier top`: the cluster on one screen."""
