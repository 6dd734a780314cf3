"""Leadership: the election, the terms of this master, and the history of the store."""
