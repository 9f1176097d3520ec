"""Scripts of alembic, one for each schema version."""
