"""The rules with their checks. A thing is a node or a device of the harness's backend."""
