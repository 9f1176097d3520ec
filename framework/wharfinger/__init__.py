"""Wharfinger: a framework for drivers that publish hardware to OpenStack Placement.

docs/explanation/architecture.rst names the packages.
"""
