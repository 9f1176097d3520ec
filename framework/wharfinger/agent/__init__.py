"""The long-running process: it supervises driver instances, and answers for their health.

The cycles are those of ``wharfinger.reconcile``. ``agent`` supervises the instances; a ``runner``
runs each of them in a process or a thread, where a ``worker`` runs the cycles. All that the agent
shows is made from the values of ``status``. Nothing is printed here.
"""
