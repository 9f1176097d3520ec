"""Texts for a terminal and JSON data of plans, provider trees, explanations and reservations."""
