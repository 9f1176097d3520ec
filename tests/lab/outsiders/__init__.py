"""Drivers and harnesses as outside authors write them, with only the public interface.

The drivers in ``right`` satisfy every rule of the conformance kit. Each driver in ``wrong`` has one
defect, which the kit must find. ``python -m tests.lab.outsiders --all`` shows the kit's verdicts.
"""
