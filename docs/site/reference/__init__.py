"""The generated pages of docs/reference: `make reference` writes them, a test compares them."""
