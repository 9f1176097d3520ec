"""Fixtures for tests of the tracker; some run with objects in this process and in another."""

from tests.functional.reconcile.conftest import files_stay_open, keeper, no_waits, where

__all__ = ["files_stay_open", "keeper", "no_waits", "where"]
