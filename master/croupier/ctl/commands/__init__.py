"""Flags and help of all commands, a module for each group. `app.load_commands` finds them."""
