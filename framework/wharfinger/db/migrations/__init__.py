"""Upgrades of the database schema with alembic."""
