"""Named experiments, one module each; `croupier.sim.registry` lists them."""
