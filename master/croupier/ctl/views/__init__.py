"""Objects of the master for people, one module each: the table and lines of `croupier.api`."""
