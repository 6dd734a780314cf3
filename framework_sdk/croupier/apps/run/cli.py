"""`croupier run`."""

from __future__ import annotations

import os
from typing import Annotated

from cyclopts import Parameter

from croupier.cli.flags import (
    LOCAL,
    CompletionFlag,
    MasterFlag,
    MinRunFlag,
    ResourcesWaitFlag,
    TimeoutFlag,
)


def run(
    *command: str,
    cpus: str = "1",
    mem: str = "128MB",
    disk: str = "0",
    gpus: str = "0",
    gpu_type: str = "",
    gpu_group: str = "",
    role: str = "*",
    count: Annotated[int, Parameter(name=["--count", "-n"])] = 1,
    nodes: Annotated[int, Parameter(name=["--nodes", "-N"])] = 0,
    same: str | None = None,
    spread: str | None = None,
    pack: Annotated[bool, Parameter(negative="")] = False,
    restarts: int = 0,
    env: Annotated[list[str] | None, Parameter(negative="")] = None,
    secret: Annotated[list[str] | None, Parameter(negative="")] = None,
    secret_files: Annotated[bool, Parameter(negative="")] = False,
    insecure: Annotated[bool, Parameter(negative="")] = False,
    shell: Annotated[bool, Parameter(negative="")] = False,
    name: str = "",
    user: str = "",
    limit: Annotated[list[str] | None, Parameter(negative="")] = None,
    max_completion: CompletionFlag = None,
    min_run: MinRunFlag = 0.0,
    requeue: Annotated[bool, Parameter(negative="")] = False,
    checkpoint_signal: str = "",
    image: str = "",
    namespaces: Annotated[bool, Parameter(negative="")] = False,
    no_network: Annotated[bool, Parameter(name="--no-network", negative="")] = False,
    output_size: str = "",
    output_files: int = 0,
    timeout: TimeoutFlag = None,
    wait_for_resources: ResourcesWaitFlag = None,
    master: MasterFlag = LOCAL,
) -> int:
    """Run a command on the cluster and print its output: croupier run -- CMD...

    The command's standard input is empty.

    Exit codes: the command's own, or 128 + N if signal N ended it; 127 if the agent does not find
    the program; 126 if it cannot run it; of several tasks, the first that is not 0; 124 if
    --max-completion, --timeout or --wait-for-resources passed. Ctrl-C ends the tasks.

    Args:
        command: The command and its arguments, after --.
        cpus: CPUs of each task; may be a fraction, such as 0.1.
        mem: Memory of each task, such as 512MB; a size needs its unit. MB, MiB and Mi are the same,
            1024 KB.
        disk: Disk of each task, such as 1GB.
        gpus: GPUs of each task, in whole numbers; or a part of one, such as 0.5, on agents that
            share named GPUs.
        gpu_type: The type of the GPUs, such as a100, as agents name it.
        gpu_group: Give each task GPUs of one group of this topology, such as nvlink, as agents
            name it.
        role: The role whose share of the cluster the tasks are charged to.
        count: The number of tasks that run the command; each line of output then begins with the
            task's [number].
        nodes: Run the command on so many agents at once, one task on each, as a gang: all start
            together, or none does, and all end if one fails. Each task finds its number in
            CROUPIER_RANK, the number of tasks in CROUPIER_SIZE, all hosts in the file
            CROUPIER_HOSTFILE, and the host and a port of task 0 in MASTER_ADDR and MASTER_PORT.
        same: Take agents with the same value of this attribute for --nodes, such as rack; with
            host, all tasks run on one agent.
        spread: Take no two agents with the same value of this attribute for --nodes.
        pack: Take few agents for --nodes, with several tasks on each.
        restarts: Start the tasks of --nodes again, all of them from the beginning, up to so many
            times if one fails or its agent is lost.
        env: NAME=VALUE for the command's environment; may be repeated.
        secret: NAME=@FILE: a variable with the content of a file, without its line end, which the
            cluster keeps secret: encrypted in the master's store, on no disk of agents, in no list
            or log. NAME takes the value of that variable here, and NAME=VALUE the value itself,
            which other users of this machine may see. May be repeated.
        secret_files: Give the command its secrets as files in the directory $CROUPIER_SECRETS_DIR,
            and not as variables.
        insecure: Allow sending secrets unencrypted to another machine.
        shell: Run the words, joined by spaces, by sh -c.
        name: Name of the job in lists. Default: the command itself.
        user: The account to run as; needs agents that run as root.
        limit: NAME:AMOUNT: a hard limit of each task, such as mem:1GB, cpus:2, disk:10GB, pids:100
            or files:1000; not below --mem, --cpus or --disk. May be repeated. By default tasks are
            held to --mem and --disk, and may use idle cpus.
        max_completion: End a task that still runs after this time, such as 60s; no limit if not
            given.
        min_run: Time for which each task runs before it may be preempted, such as 10m, at most 24h.
        requeue: Queue a task again that is preempted. It begins anew, in a new sandbox.
        checkpoint_signal: Signal that a task gets to save its state when it is preempted, such as
            SIGUSR1. SIGTERM follows at the end of the master's --preemption-grace.
        image: Run in this root file system: docker://NAME, oci:PATH:TAG or dir:PATH on the agent.
        namespaces: Give the command its own view of the machine: processes, /tmp, a read-only
            system.
        no_network: Run the command without network.
        output_size: Size of one output file, such as 64MB. The agent removes the oldest file once a
            task has written --output-files of them to stdout or stderr; the agent's default if not
            given.
        output_files: The number of output files that the agent keeps; the agent's default if not
            given.
        timeout: Kill the tasks if they are not done after this time, such as 10m; no limit if not
            given.
        wait_for_resources: Give up, and kill the tasks, if tasks wait for resources or for the
            master and none starts for this time, such as 5m; no limit if not given.
    """
    from croupier.apps.controller.process import run_application
    from croupier.apps.job_file.gang_spec import GangSpec
    from croupier.apps.run.job import (
        Job,
        device_options,
        make_unit,
        parse_environment,
        read_secrets,
    )
    from croupier.apps.run.job_run import Limits, run_job
    from croupier.model.errors import InvalidRequest

    if nodes < 0 or (nodes and count != 1):
        raise InvalidRequest("--nodes is 1 or more, and takes the place of --count")
    if not nodes and (same or spread or pack or restarts):
        raise InvalidRequest("--same, --spread, --pack and --restarts need --nodes")
    if "" in (same, spread):
        raise InvalidRequest("--same and --spread need the name of an attribute, or host")
    unit = make_unit(cpus, mem, disk, gpus)
    job = Job(
        words=command,
        unit=unit,
        is_shell=shell,
        count=nodes or count,
        gang=GangSpec(nodes, same or "", spread or "", pack, restarts) if nodes else None,
        role=role,
        name=name,
        secrets=read_secrets(secret or (), os.environ),
        is_insecure=insecure,
        options={
            "env": parse_environment(env or ()),
            "secret_files": secret_files,
            "user": user,
            "limits": ";".join(limit or ()),
            "max_completion_s": max_completion,
            "min_run_s": min_run,
            "requeue": requeue,
            "checkpoint_signal": checkpoint_signal,
            "image": image,
            "namespaces": namespaces,
            "network": not no_network,
            "output_size": output_size or 0,
            "output_files": output_files,
            **device_options(unit, gpu_type, gpu_group),
        },
    )
    limits = Limits(timeout, wait_for_resources)
    return run_application(master, lambda: run_job(job, master, limits))
