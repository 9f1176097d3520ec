"""A simulated Keystone that issues a token to every user. Tokens expire after ten seconds."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import webob

#: keystoneauth requests a new token at once, since less than half a minute is left.
_LASTS = timedelta(seconds=10)


def keystone(placement: str) -> Any:
    """Return the WSGI application, with ``placement`` as Placement's URL in its catalog."""

    def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        request = webob.Request(environ)
        if request.method == "POST":
            answer = webob.Response(json_body={"token": _token(placement)}, charset="UTF-8")
            answer.status = 201
            answer.headers["X-Subject-Token"] = "admin"
        else:
            links = [{"rel": "self", "href": f"{request.host_url}/v3/"}]
            version = {"id": "v3.14", "status": "stable", "links": links}
            answer = webob.Response(json_body={"version": version}, charset="UTF-8")
        found: Iterable[bytes] = answer(environ, start_response)
        return found

    return application


def _token(placement: str) -> dict[str, Any]:
    now = datetime.now(UTC)
    endpoint = {"interface": "public", "region": "r", "region_id": "r", "url": placement, "id": "e"}
    return {
        "methods": ["password"],
        "user": {"id": "u", "name": "wharfinger", "domain": {"id": "default", "name": "Default"}},
        "project": {"id": "p", "name": "service", "domain": {"id": "default", "name": "Default"}},
        "roles": [{"id": "s", "name": "service"}],
        "issued_at": now.strftime("%Y-%m-%dT%H:%M:%S.000000Z"),
        "expires_at": (now + _LASTS).strftime("%Y-%m-%dT%H:%M:%S.000000Z"),
        "catalog": [{"type": "placement", "name": "placement", "id": "c", "endpoints": [endpoint]}],
    }
