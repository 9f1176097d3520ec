"""Common code of the harnesses of Ironic and Cyborg."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from wharfinger.conformance.backend_proxy import Proxy
from wharfinger.conformance.harness import Fault, Harness, Placement
from wharfinger_harnesses.openstack import OpenStackService


class ServiceHarness(Harness):
    """A harness whose backend is an HTTP service behind a proxy."""

    _service: OpenStackService
    _proxy: Proxy

    def __init__(self, directory: Path, placement: Placement) -> None:
        super().__init__(directory, placement)
        self._open: Final = ExitStack()

    def _serve(self, service: OpenStackService) -> None:
        self._service = self._open.enter_context(service)
        self._proxy = Proxy(service.url)
        self._open.callback(self._proxy.stop)
        self._proxy.start()

    def stop(self) -> None:
        self._open.close()

    def restart(self) -> None:
        self._service.stop()
        self._service.start_again()

    def expect(self, at: int | None = None, fault: Fault | None = None) -> None:
        self._proxy.expect(at, fault)

    @property
    def calls(self) -> Sequence[str]:
        return self._proxy.calls
