"""The code of workers. The executor sends it to them; they need no Croupier of their own."""
