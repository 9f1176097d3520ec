"""The client with a Keystone whose catalog does not contain Placement yet."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import webob
from keystoneauth1 import fixture

from tests.lab.faults import Interceptor
from wharfinger.conf import parse
from wharfinger.exceptions import PlacementUnavailable
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.session import make_adapter

CONFIGURATION = """
[placement]
embedded = false
auth_type = password
auth_url = {url}/v3
username = wharfinger
password = s3cret
project_name = service
user_domain_id = default
project_domain_id = default
"""
VERSIONS = {"versions": [{"id": "v1.0", "min_version": "1.0", "max_version": "1.39"}]}


def test_placement_missing_in_the_catalog_is_found_once_it_is_there(tmp_path: Path) -> None:
    token = fixture.V3Token(project_id="service")

    def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        path, headers = webob.Request(environ).path, {}
        content: dict[str, Any] = VERSIONS if path == "/" else {"resource_providers": []}
        if path == "/v3/auth/tokens":
            content, headers = token, {"X-Subject-Token": "token"}
        elif path == "/v3":
            content = fixture.V3Discovery(service.url)
        response = webob.Response(json_body=dict(content), charset="UTF-8")
        response.headers.update(headers)
        found: Iterable[bytes] = response(environ, start_response)
        return found

    with Interceptor(answer) as service:
        token.add_service("identity").add_standard_endpoints(public=service.url)
        path = tmp_path / "wharfinger.conf"
        path.write_text(CONFIGURATION.format(url=service.url))
        client = PlacementClient(make_adapter(parse([str(path)])))
        for _ in range(2):
            with pytest.raises(
                PlacementUnavailable, match=r"placement service not found\. Add it to Keystone's"
            ):
                client.list_providers()

        token.add_service("placement").add_standard_endpoints(public=service.url)

        assert client.list_providers() == []
