"""Resource tracker: node rows, usage, claims of instances, and reports that the service is up."""
