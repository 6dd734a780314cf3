"""Objects of the master as JSON: what `--json` of the command line and the HTTP API return.

Each object is a `TypedDict`. `schema.py` makes its JSON schema from that, and `objects.py` the
object from a message; a function adds what is more than a field.

Rule: keys of JSON objects are snake_case and never change.
"""
