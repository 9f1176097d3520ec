"""Drivers and harnesses as outside authors write them, with the public interface alone.

Those in ``right`` keep every rule of the conformance kit. Each one in ``wrong`` has one defect,
which the kit must find. ``python -m tests.lab.outsiders --all`` shows the kit's verdicts on them.
"""
