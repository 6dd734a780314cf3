"""Parts of commands: connection flags, the connection to the master, lines and tables, signals.

The commands of `croupier.ctl`, the applications and commands of others are made of them.
"""
