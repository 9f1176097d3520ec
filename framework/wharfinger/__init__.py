"""Wharfinger: a framework for drivers that publish hardware to OpenStack Placement.

Stevedore-loaded drivers say what a host or a fleet has; the framework tags it with
its owner, reserves it while it cannot be used, and keeps Placement current.

docs/explanation/architecture.rst names the packages, and follows a provider through them.
"""
