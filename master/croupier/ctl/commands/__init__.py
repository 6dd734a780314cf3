"""The commands, a module for each group: flags, help and action. `app.SUMMARIES` lists them."""
