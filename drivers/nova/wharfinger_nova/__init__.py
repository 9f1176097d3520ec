"""Runs compute drivers of nova as drivers of Wharfinger.

Importing this package does not import nova, since that takes seconds.
"""
