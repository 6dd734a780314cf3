"""Named experiments, one module each; `croupier.lab.registry` lists them."""
