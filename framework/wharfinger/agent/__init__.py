"""The agent: a process that runs the driver instances of a host."""
