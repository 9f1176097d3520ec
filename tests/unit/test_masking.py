"""Passwords and tokens in texts: which parts are masked."""

import io
import logging

import pytest

from wharfinger.conf.database import DatabaseSection
from wharfinger.conf.unread_keys import Setting
from wharfinger.exceptions import ConfigurationError, WharfingerError, printable, shown
from wharfinger.masking import learn, learn_option, learn_url, mask_handlers, masked


@pytest.mark.parametrize(
    ("text", "without"),
    [
        # A password before the host of a URL.
        ("GET http://u:pw@host/x", "GET http://u:***@host/x"),
        ("http://u:p%40w@host:8778", "http://u:***@host:8778"),
        ("http://u:p@w@host", "http://u:***@host"),
        ("http://u:p/w@host", "http://u:***@host"),
        ("http://:pw@host", "http://:***@host"),
        ("https://t0ken@host", "https://***@host"),
        ("'http://u:pw@a' and 'http://u:pw@b'", "'http://u:***@a' and 'http://u:***@b'"),
        ("postgresql+psycopg://u:pw@a:1,b:2/x", "postgresql+psycopg://u:***@a:1,b:2/x"),
        # A value after the name of a secret option.
        ("/x?token=abc&limit=1", "/x?token=***&limit=1"),
        ("password = two words", "password = *** words"),
        ("password='two words', a=1", "password='***', a=1"),
        ('{"password": "a\\"b", "a": 1}', '{"password": "***", "a": 1}'),
        ("{'auth_token': 'abc'}", "{'auth_token': '***'}"),
        ("api_key=abc;", "api_key=***;"),
        ("secret_id = abc, token2=abd", "secret_id = ***, token2=***"),
        ("OS_PLACEMENT__PASSWORD=abc", "OS_PLACEMENT__PASSWORD=***"),
        # A secret in a header.
        ("X-Auth-Token: abc", "X-Auth-Token: ***"),
        ('-H "X-Service-Token: {SHA256}ab"', '-H "X-Service-Token: ***"'),
        ("{'X-Subject-Token': b'abc'}", "{'X-Subject-Token': b'***'}"),
        (
            "('X-Auth-Token', 'abc'), (b'Cookie', b'abd')",
            "('X-Auth-Token', '***'), (b'Cookie', b'***')",
        ),
        ("Authorization: Basic dTpw", "Authorization: ***"),
        ("Set-Cookie: a=abc; b=abd Via: c", "Set-Cookie: *** Via: c"),
    ],
)
def test_masked_text_with_a_secret_has_three_stars_instead(text: str, without: str) -> None:
    assert masked(text) == without
    assert masked(without) == without


@pytest.mark.parametrize(
    "text",
    [
        "GET http://host:8778/resource_providers?name=pci@0000",
        "http://host/a@b",
        "a token: the request has none",
        "the secret to success is work",
        "mail me@example.org",
        "sort_key=updated_at",
        "hw:tpm_secret_security=host",
        "{'hw:tpm_secret_security': 'host'}",
        "trait:CUSTOM_TOKEN = 'required', resources:CUSTOM_SECRET=1",
        "[token] max_token_size = 16384",
    ],
)
def test_masked_text_without_a_secret_stays(text: str) -> None:
    assert masked(text) == text


@pytest.mark.parametrize("form", ["k/n@wn-1", "k%2Fn%40wn-1", "k/n%40wn-1", "k%252Fn%2540wn-1"])
def test_masked_learned_secret_in_any_form_is_masked(form: str) -> None:
    learn_url("http://u:k%2Fn%40wn-1@host")
    assert masked(f"it is {form} here") == "it is *** here"


def test_masked_learned_user_and_password_is_masked_as_basic_authentication() -> None:
    learn_url("http://operator:another-one@host")
    assert masked("b3BlcmF0b3I6YW5vdGhlci1vbmU=") == "***"


def test_learn_url_with_only_a_user_learns_a_token_of_http_and_no_user_of_a_database() -> None:
    learn_url("https://t0ken-alone@host")
    learn_url("postgresql://wharfinger@localhost/wharfinger")
    assert masked("t0ken-alone: run wharfinger db upgrade") == "***: run wharfinger db upgrade"


def test_learn_short_secret_keeps_words() -> None:
    learn("admin")
    assert masked("the admin role") == "the admin role"


def test_learn_option_takes_the_value_by_the_name_of_the_option() -> None:
    learn_option("hmc_password", "learned-by-name")
    learn_option("username", "not-a-secret")
    assert masked("learned-by-name of not-a-secret") == "*** of not-a-secret"


def test_error_with_a_secret_hides_it_in_text_and_facts() -> None:
    error = ConfigurationError(
        section="placement",
        key="endpoint_override",
        value="http://u:pw@host",
        problem="wrong.",
        remedy="",
    )
    said = f"{error} {error!r} {error.facts} {error.value}"
    assert "pw" not in said
    assert "http://u:***@host" in said


def test_shown_long_text_is_masked_before_it_is_cut_off() -> None:
    told = f"{'x' * 140} http://u:{'p' * 500}@host"
    assert "pp" not in shown(told)
    assert "pp" not in shown(told.encode())
    assert "pp" not in str(WharfingerError(reason=shown([told])))


def test_printable_text_has_no_secret() -> None:
    assert printable("http://u:pw@host\n") == "http://u:***@host\\n"


def test_masking_handlers_leave_no_secret_in_a_traceback() -> None:
    logger, text = logging.Logger("one"), io.StringIO()
    logger.addHandler(logging.StreamHandler(text))
    mask_handlers(logger)
    mask_handlers(logger)

    try:
        try:
            raise ValueError("http://u:pw@host")
        except ValueError as error:
            raise RuntimeError("http://v:pw@host") from error
    except RuntimeError:
        logger.exception("at %s", "http://w:pw@host")

    assert "pw" not in text.getvalue()
    assert [f"http://{user}:***@host" in text.getvalue() for user in "uvw"] == [True] * 3


def test_masking_handlers_that_cannot_write_print_no_secret(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logger, closed = logging.Logger("one"), io.StringIO()
    closed.close()
    logger.addHandler(logging.StreamHandler(closed))
    mask_handlers(logger)

    url = "http://u:pw@host"
    logger.error("at %s", url)
    logger.error("at %d", url)

    told = capsys.readouterr().err
    assert "pw" not in told
    assert "I/O operation on closed file" in told
    assert told.count("test_masking.py was not logged") == 2


def test_objects_of_the_configuration_have_no_secret_in_their_representation() -> None:
    section = DatabaseSection("postgresql://u:pw@host/x", {})
    setting = Setting("file", "database", "password", "pw")
    assert "pw" not in f"{section!r} {setting!r}"
