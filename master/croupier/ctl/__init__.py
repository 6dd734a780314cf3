"""The `croupier` command.

`commands/` has the flags, help and action of every command, and `views/` the JSON, table and lines
of every object. Add a command as a module of `commands/`, and to `app.SUMMARIES`: `operation.ask`
makes its call and `operation.print_result` prints the response. Add a column beside the JSON key in
`views/`.
"""
