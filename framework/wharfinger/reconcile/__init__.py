"""Reconcile Placement with what drivers report."""
