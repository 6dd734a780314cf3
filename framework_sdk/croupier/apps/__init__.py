"""Applications: frameworks on the public SDK that are commands of `croupier`."""
