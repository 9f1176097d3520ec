"""Drivers and harnesses as outside authors write them, with the public interface alone.

Those in ``right`` keep every rule of the conformance kit. Each one in ``wrong`` has one defect,
which the kit is to find. ``python -m tests.lab.outsiders --all`` shows what the kit says of them.
"""
