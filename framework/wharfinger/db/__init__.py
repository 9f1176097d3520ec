"""The database below the objects; only ``wharfinger.objects`` comes here."""
