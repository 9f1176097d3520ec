"""The database below the objects; only ``wharfinger.objects`` uses it."""
