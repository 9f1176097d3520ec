"""The long-running process: cycles of each driver instance, in a thread of its own.

The cycles are those of ``wharfinger.reconcile``. Nothing is printed here.
"""
