"""Talk to Placement: the client, its writes, the reader and the embedded service. No objects."""
