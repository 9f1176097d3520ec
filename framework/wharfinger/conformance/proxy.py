"""The former name of ``backend_proxy``, for harnesses written for version 1.0 of the kit."""

from wharfinger.conformance.backend_proxy import Proxy

__all__ = ["Proxy"]
