"""Named experiments, one module each; `croupier.lab.cli` lists them."""
