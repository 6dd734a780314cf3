"""Control groups: limits on memory, cpus and processes, which the kernel enforces."""
