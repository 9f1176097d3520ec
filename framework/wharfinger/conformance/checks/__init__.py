"""Checks of the rules, by chapter. Each check belongs to one rule."""
