"""The agent: a long-running process that supervises driver instances and reports their health.

``agent`` supervises the driver instances. A ``runner`` runs each of them in a process or a thread,
where a ``worker`` runs the cycles of ``wharfinger.reconcile``. All that the agent shows is computed
from the values of ``status``. This package prints nothing.
"""
