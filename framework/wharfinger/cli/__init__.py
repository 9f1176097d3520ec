"""The programs ``wharfinger``, with all its commands, and ``wharfinger-status``."""
