"""Faults that a harness can make although it does not declare them."""

from collections.abc import Sequence
from pathlib import Path

from wharfinger.conformance.backend_proxy import Proxy
from wharfinger.conformance.harness import COMMON_FAULTS, Fault, Harness


class OldHarness(Harness):
    """A harness from before the later faults existed, with or without a proxy."""

    def __init__(self, proxy: Proxy | None) -> None:
        super().__init__(Path(), None)  # type: ignore[arg-type]
        self.proxy = proxy

    def start(self) -> None:
        raise AssertionError

    reset = restart = start

    def configuration(self, instance: str) -> str:
        raise AssertionError

    def things(self) -> Sequence[str]:
        raise AssertionError

    def add(self) -> str:
        raise AssertionError

    def remove(self, thing: str) -> None:
        raise AssertionError

    put_back = remove

    def expect(self, at: int | None = None, fault: Fault | None = None) -> None:
        assert self.proxy is not None
        self.proxy.expect(at, fault)

    @property
    def calls(self) -> Sequence[str]:
        return ()


def test_harness_with_a_proxy_has_all_faults() -> None:
    assert OldHarness(Proxy("http://127.0.0.1:1")).faults == {*Fault}


def test_harness_without_a_proxy_has_the_common_faults() -> None:
    assert OldHarness(None).faults == COMMON_FAULTS
