"""WSGI applications for the requests of Cyborg to Glance and nova.

The file `images.json` has the function of each image. The file `nova` has a line for each event.
"""

import json
from collections.abc import Callable, Iterable
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

Application = Callable[[dict[str, Any], Any], Iterable[bytes]]

#: The property of an image that has the id of its function.
_FUNCTION = "accel:function_id"


def answer(start_response: Any, status: HTTPStatus, body: Any = None) -> list[bytes]:
    """Start an HTTP response, in JSON unless the body is bytes; return the body."""
    raw = isinstance(body, bytes)
    content = body if raw else json.dumps(body).encode()
    start_response(
        f"{status.value} {status.phrase}",
        [
            ("Content-Type", "application/octet-stream" if raw else "application/json"),
            ("Content-Length", str(len(content))),
        ],
    )
    return [content]


def _version(environ: dict[str, Any], path: str, name: str, **more: str) -> dict[str, Any]:
    url = f"http://{environ['HTTP_HOST']}{environ['SCRIPT_NAME']}/{path}/"
    return {"id": name, "status": "CURRENT", "links": [{"rel": "self", "href": url}], **more}


def glance(directory: Path) -> Application:
    """Return a WSGI application with Glance's API for images."""

    def images() -> list[dict[str, Any]]:
        functions = json.loads((directory / "images.json").read_text())
        return [
            {"id": uuid, "status": "active", **({_FUNCTION: function} if function else {})}
            for uuid, function in functions.items()
        ]

    def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        match environ["PATH_INFO"].strip("/").split("/"):
            case [""] | ["v2"]:
                versions = {"versions": [_version(environ, "v2", "v2.9")]}
                return answer(start_response, HTTPStatus.OK, versions)
            case ["v2", "images"]:
                functions = parse_qs(environ.get("QUERY_STRING", "")).get(_FUNCTION)
                found = [
                    image
                    for image in images()
                    if functions is None or image.get(_FUNCTION) in functions
                ]
                return answer(start_response, HTTPStatus.OK, {"images": found})
            case ["v2", "images", uuid, *more]:
                for image in images():
                    if image["id"] == uuid:
                        bits = more == ["file"]
                        return answer(
                            start_response, HTTPStatus.OK, uuid.encode() if bits else image
                        )
        return answer(start_response, HTTPStatus.NOT_FOUND, {})

    return application


def nova(directory: Path) -> Application:
    """Return a WSGI application with nova's API for external events."""

    def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "POST":
            version = _version(environ, "v2.1", "v2.1", version="2.96", min_version="2.1")
            return answer(start_response, HTTPStatus.OK, {"version": version})
        told = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
        with (directory / "nova").open("a") as file:
            file.writelines(f"{json.dumps(event)}\n" for event in told["events"])
        return answer(start_response, HTTPStatus.OK, told)

    return application
