"""Reconcile Placement with what drivers report: observe, desire, look up, plan, apply, remember.

This package has the one writer of providers. It reaches the database only through the objects.
"""
