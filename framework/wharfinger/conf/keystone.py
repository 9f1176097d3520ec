"""Options of keystoneauth for a service, and the adapter from them."""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from keystoneauth1 import exceptions as keystone_exceptions
from keystoneauth1 import loading
from keystoneauth1.adapter import Adapter
from oslo_config import cfg

from wharfinger.conf import bounded_transport
from wharfinger.conf.option_reading import read_options
from wharfinger.exceptions import ConfigurationError
from wharfinger.masking import MASK

_OWN_OPTIONS: Final = (
    cfg.IntOpt(
        "max_response_size",
        default=256,
        min=1,
        help="The largest size of an answer of the service, in MiB after decompression. A request "
        "with a larger answer fails. Placement's list of 100,000 providers has about 77 MiB.",
    ),
)
#: Seconds for a whole request. Work has to continue within 30 s after an outage, so no request may
#: take longer.
_TIMEOUT: Final = 30
_TIMEOUT_HELP: Final = (
    "Seconds for a whole request, including its token, redirects, retries of keystoneauth, and "
    "the whole answer. After an outage of the service, work continues within this time plus at "
    "most 30 seconds."
)
_AUTH_OPTIONS: Final[tuple[cfg.Opt, ...]] = tuple(loading.get_auth_common_conf_options())
OPTIONS: Final[tuple[cfg.Opt, ...]] = (
    *_AUTH_OPTIONS,
    *(
        cfg.FloatOpt("timeout", default=_TIMEOUT, help=_TIMEOUT_HELP)
        if one.dest == "timeout"
        else one
        for one in loading.get_session_conf_options()
    ),
    *loading.get_adapter_conf_options(include_deprecated=False),
    *_OWN_OPTIONS,
)
_URLS: Final = ("auth_url", "endpoint", "endpoint_override")
#: Values that keystoneauth inserts into an endpoint, and the auth_types that have no such values.
_ENDPOINT_VALUES: Final = {"project_id": "p", "tenant_id": "p", "user_id": "u"}
_INTERFACES: Final = frozenset({"admin", "internal", "public"})
_WITHOUT_PROJECT: Final = frozenset({"admin_token", "http_basic", "noauth", "none"})


def register(conf: cfg.ConfigOpts, section: str, service_type: str) -> None:
    """Register keystoneauth's options in the section of a service."""
    conf.register_opts(list(OPTIONS), section)
    conf.set_default("service_type", service_type, section)


def sample_options(service_type: str) -> list[cfg.Opt]:
    """Return the options for the configuration sample."""
    return [
        *(
            cfg.StrOpt("service_type", default=service_type, help=one.help)
            if one.dest == "service_type"
            else one
            for one in OPTIONS
        ),
        *loading.get_auth_plugin_conf_options("password"),
    ]


def read_credentials(conf: cfg.ConfigOpts, section: str) -> tuple[str, str | None]:
    """Return the name of the section with the credentials, and the auth_type.

    Raises ConfigurationError.
    """
    values = read_options(conf, section, OPTIONS)
    credentials = values["auth_section"] or section
    auth_type = read_options(conf, credentials, _AUTH_OPTIONS)["auth_type"]
    if auth_type:
        options = _plugin_options(credentials, auth_type)
        for problem in _wrong_urls(credentials, read_options(conf, credentials, options)):
            raise problem
    for problem in _problems(section, values, auth_type):
        raise problem
    return credentials, auth_type or None


def load_adapter(conf: cfg.ConfigOpts, section: str) -> Adapter:
    """Return the adapter of a configured service. Raises ConfigurationError."""
    try:
        auth = loading.load_auth_from_conf_options(conf, section)
        session = bounded_transport.SessionLoader().load_from_conf_options(conf, section, auth=auth)
        adapter: Adapter = loading.load_adapter_from_conf_options(
            conf, section, session=session, auth=auth
        )
    except (keystone_exceptions.ClientException, cfg.Error) as error:
        raise ConfigurationError(
            section=section,
            key="auth_type",
            value=conf[section].auth_type,
            problem=f"{error}.",
            remedy="Correct the options of this auth_type, which keystoneauth's documentation "
            "describes.",
        ) from error
    bounded_transport.bound(session, conf[section].max_response_size, section)
    return adapter


def _wrong_urls(section: str, values: Mapping[str, Any]) -> Iterator[ConfigurationError]:
    for key in _URLS:
        if not _is_unambiguous(values.get(key) or ""):
            yield ConfigurationError(
                section=section,
                key=key,
                value=MASK,
                problem="this URL has an invalid host or port, or an @ after its host.",
                remedy="Correct the host and the port. In a user name or a password, write / as "
                "%2F, ? as %3F, # as %23, @ as %40 and : as %3A.",
            )


def _is_unambiguous(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.port != 0 and "@" not in parts.path + parts.query + parts.fragment
    except ValueError:
        return False


def _problems(
    section: str, values: Mapping[str, Any], auth_type: str | None
) -> Iterator[ConfigurationError]:
    def wrong(key: str, problem: str, remedy: str) -> ConfigurationError:
        return ConfigurationError(
            section=section, key=key, value=values[key], problem=problem, remedy=remedy
        )

    yield from _wrong_urls(section, values)
    for key in ("cafile", "certfile", "keyfile"):
        if values[key] and not Path(values[key]).exists():
            yield wrong(key, "this file does not exist.", "Correct the path, or remove the option.")
    if not _INTERFACES.issuperset(values["valid_interfaces"] or ()):
        yield wrong(
            "valid_interfaces",
            "it names an interface that does not exist.",
            f"Use {', '.join(sorted(_INTERFACES))}.",
        )
    if values["version"] and (values["min_version"] or values["max_version"]):
        yield wrong(
            "version",
            "it cannot be combined with min_version or max_version.",
            "Remove version, or min_version and max_version.",
        )
    if values["timeout"] is not None and not values["timeout"] > 0:  # also true for NaN
        yield wrong("timeout", "it leaves no time for an answer.", "Set a number above 0.")
    override = values["endpoint_override"] or ""
    try:
        is_filled = override % ({} if auth_type in _WITHOUT_PROJECT else _ENDPOINT_VALUES)
    except (KeyError, TypeError, ValueError):
        is_filled = ""
    if override and not is_filled:
        yield wrong(
            "endpoint_override",
            "the text after a % is not the name of a value that can be inserted.",
            "Write %% for the character %.",
        )


@cache  # the search takes longer than the rest of this module
def _auth_types() -> frozenset[str]:
    return frozenset(entry_points(group=loading.PLUGIN_NAMESPACE).names)


def _plugin_options(section: str, kind: str) -> list[cfg.Opt]:
    known = _auth_types()
    try:
        if kind not in known:
            raise keystone_exceptions.NoMatchingPlugin(kind)
        options: list[cfg.Opt] = loading.get_auth_plugin_conf_options(kind)
    except keystone_exceptions.NoMatchingPlugin as error:
        raise ConfigurationError(
            section=section,
            key="auth_type",
            value=kind,
            problem="keystoneauth has no plugin for this auth_type, or cannot load the plugin.",
            remedy=f"Use one of {', '.join(sorted(known - {kind}))}.",
        ) from error
    return options
