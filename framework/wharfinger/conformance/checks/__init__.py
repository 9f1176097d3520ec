"""The rules with their checks, one module for each chapter of the contract."""
