"""What the environment may say."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from nightingale.settings import Settings, is_service_link, secrets_in

# As Kubernetes sets them for Services named nightingale, nightingale-tts and nightingale-serve.
LINKS = {
    "NIGHTINGALE_SERVICE_HOST": "10.96.0.7",
    "NIGHTINGALE_SERVICE_PORT": "8004",
    "NIGHTINGALE_SERVICE_PORT_HTTP": "8004",
    "NIGHTINGALE_PORT": "tcp://10.96.0.7:8004",
    "NIGHTINGALE_PORT_8004_TCP": "tcp://10.96.0.7:8004",
    "NIGHTINGALE_PORT_8004_TCP_PROTO": "tcp",
    "NIGHTINGALE_PORT_8004_TCP_PORT": "8004",
    "NIGHTINGALE_PORT_8004_TCP_ADDR": "10.96.0.7",
    "NIGHTINGALE_TTS_SERVICE_HOST": "10.96.0.8",
    "NIGHTINGALE_TTS_PORT": "udp://10.96.0.8:10200",
    "NIGHTINGALE_SERVE_PORT": "tcp://10.96.0.9:8004",
    "NIGHTINGALE_SERVE_SERVICE_PORT": "8004",
}


def test_home_has_a_default_and_can_be_moved() -> None:
    assert Settings.read({}).home == Path.home() / ".nightingale"
    assert Settings.read({"NIGHTINGALE_HOME": "/data/birds"}).home == Path("/data/birds")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("NIGHTINGALE_HOEM", "did you mean NIGHTINGALE_HOME?"),
        ("NIGHTINGALE_APIKEY", "did you mean NIGHTINGALE_API_KEY?"),
        ("NIGHTINGALE_PORT", "did you mean NIGHTINGALE_SERVE_PORT?"),
        ("NIGHTINGALE_SERVE_MAX_REQUEST", "did you mean NIGHTINGALE_SERVE_MAX_REQUESTS?"),
        ("NIGHTINGALE_ZZZ", "NIGHTINGALE_ZZZ is not known"),
    ],
)
def test_a_misspelt_variable_is_a_warning_that_names_the_right_one(
    name: str, meant: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings.read({name: "8004", "PATH": "/bin"}, ["port", "max_requests"])
    assert settings == Settings.read({})
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert name in record.getMessage()
    assert meant in record.getMessage()
    assert "\n" not in record.getMessage()


def test_what_is_known_or_read_elsewhere_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    Settings.read({"NIGHTINGALE_SERVE_PORT": "1", "NIGHTINGALE_TRAINING": "/data"}, ["port"])
    Settings.read({"NIGHTINGALE_SERVE_PROT": "1"})  # by who does not know the options of `serve`
    assert caplog.records == []


@pytest.mark.parametrize(("name", "value"), LINKS.items())
def test_kubernetes_service_links_are_known_by_their_shape(name: str, value: str) -> None:
    assert is_service_link(name, value)


def test_service_links_are_mentioned_at_debug_only(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "nightingale.settings")
    assert Settings.read(LINKS, ["port"]) == Settings.read({})
    assert {record.levelno for record in caplog.records} == {logging.DEBUG}


@pytest.mark.parametrize(
    ("name", "value"),
    [("NIGHTINGALE_SERVE_PORT", "8004"), ("NIGHTINGALE_SERVE_HOST", "0.0.0.0"),
     ("NIGHTINGALE_SERVE_WYOMING_PORT", "10200"), ("REDIS_PORT", "tcp://10.0.0.1:6379")],
)  # fmt: skip
def test_our_own_variables_are_no_service_links(name: str, value: str) -> None:
    assert not is_service_link(name, value)


def test_secrets_are_known_by_their_names() -> None:
    secret = ["NIGHTINGALE_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "db_password", "APIKEY"]
    plain = ["NIGHTINGALE_SERVE_KEYS", "PATH", "KEYBOARD", "TOKENIZERS_PARALLELISM", "HF_HOME"]
    assert secrets_in([*secret, *plain]) == secret
