"""Upgrades of the schema with alembic: its start script, shared operations, and the versions."""
