"""Golden vectors of fairness: files of questions with expected answers.

`tests/vectors/fairness.json` documents the schema (`schema.fields`). An unknown field, mode,
policy or expected key is a failure of that vector, with a message; nothing is ignored.
"""
