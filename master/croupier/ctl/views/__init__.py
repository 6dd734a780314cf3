"""Objects of the master, one module each: the JSON object, the table, and lines for people.

Rule: keys of JSON objects are snake_case and never change.
"""
