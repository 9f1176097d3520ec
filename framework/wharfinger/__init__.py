"""Wharfinger: a framework for drivers that publish hardware to OpenStack Placement.

Drivers, which stevedore loads, report the hardware of a host or a fleet. The framework
tags it with its owner, reserves it while it cannot be used, and keeps Placement current.

docs/explanation/architecture.rst names the packages, and follows a provider through them.
"""
