"""Who may call, how often, and what is written down of it."""
