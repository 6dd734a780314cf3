"""Objects of the master as JSON: what `--json` of the command line and the HTTP API return.

Each object is a `TypedDict`, from which `schema.py` makes its JSON schema, and a function that
makes it from a message.

Rule: keys of JSON objects are snake_case and never change.
"""
