"""Job files: TOML or YAML, read into checked values.

Rule: a mistake is one line that names the file and the place, such as
`jobs.toml: tasks.build.retries: a whole number is expected, not 'x'`. Unknown keys are errors.

    def read_job(path):
        file = read_job_file(path)               # a Section; TOML or YAML by suffix
        file.check_keys(("name", "role", "tasks"))
        name = file.text("name", default=path.stem)
        tasks = {s.name: read_task(s) for s in file.required("tasks").sections()}

A command with keys of its own beside those of a task says `section.check_keys((*TASK_KEYS,
"after"))` and then `read_task(section, keys_checked=True)`.
"""
