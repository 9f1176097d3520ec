"""The migrations of the schema: one module for each version."""
