"""Tests of the tracker; some run twice, as those of cycles: with objects kept elsewhere, too."""

from tests.functional.reconcile.conftest import files_stay_open, keeper, nobody_waits, where

__all__ = ["files_stay_open", "keeper", "nobody_waits", "where"]
