"""Backends for the conformance kit and the tests: real services with simulated hardware."""
