"""Reconcile Placement with what drivers report: observe, desire, look up, plan, apply, remember."""
