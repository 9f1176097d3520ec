"""The database of the versioned objects. Only ``wharfinger.objects`` uses it."""
