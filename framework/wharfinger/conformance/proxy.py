"""The former name of ``backend_proxy``, for harnesses written for kit 1.0."""

from wharfinger.conformance.backend_proxy import Proxy

__all__ = ["Proxy"]
