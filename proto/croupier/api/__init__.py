"""Objects of the master as JSON: what `--json` of the command line and the HTTP API return.

A field of a message is defined once, in its `.proto` file: `objects.py` makes the JSON object of a
message, and `schema.py` its JSON schema, described by the comments. `shapes.py` has the exceptions.

Rule: keys of JSON objects are snake_case and never change.
"""
