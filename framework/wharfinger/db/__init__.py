"""Access to the database that stores versioned objects; only ``wharfinger.objects`` uses it."""
