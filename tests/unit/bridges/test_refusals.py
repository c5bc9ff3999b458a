"""What brokers and TLS say when they refuse, and the remedy that it gets; the texts are those of real brokers."""

from __future__ import annotations

import pytest

from cues_kafka.bridges.rabbitmq.address import RabbitMqAddress
from cues_kafka.bridges.stomp.address import StompAddress
from cues_kafka.bridges.stomp.frames import Frame
from cues_kafka.bridges.stomp.refusals import refusal, said_by
from cues_kafka.bridges.tls import early_end, tls_refusal

VERIFY = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: {} (_ssl.c:1006)"


@pytest.mark.parametrize(
    ("said", "text", "remedy"),
    [
        (VERIFY.format("self-signed certificate in certificate chain"), "not from the authorities in mine.pem", "ca="),
        (VERIFY.format("Hostname mismatch, certificate is not valid for 'x'."), "is for another host", "the name"),
        (VERIFY.format("certificate has expired"), "is not valid now", "renew it"),
        ("[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert certificate required", "wants a certificate", "cert="),
        ("[SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert unknown ca (_ssl.c:2580)", "wants a certificate", "cert="),
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)", "no TLS at this port", "amqp://"),
    ],
)
def test_errors_of_tls_name_what_has_to_change(said: str, text: str, remedy: str) -> None:
    """With the file that is used."""
    address = RabbitMqAddress("amqps://u:p@broker:5671", "here")
    address.ca = "mine.pem"
    error = tls_refusal("RabbitMQ", address, said)
    assert error is not None
    assert text in str(error)
    assert remedy in error.remedy


def test_other_errors_and_connections_without_tls_are_not_taken_for_it() -> None:
    """They may end by themselves."""
    assert tls_refusal("RabbitMQ", RabbitMqAddress("amqps://broker", "here"), "Connection refused") is None
    plain = RabbitMqAddress("amqp://broker", "here")
    assert tls_refusal("RabbitMQ", plain, VERIFY.format("x")) is None
    assert early_end(plain) == "If the port has TLS, write amqps://"


@pytest.mark.parametrize(
    ("said", "denied", "remedy"),
    [
        ("User me is not authorized to read from: queue://orders", True, "let this user read from queue://orders"),
        ("AMQ229032: User: me does not have permission='CREATE_ADDRESS' on address a.b", True, "CREATE_ADDRESS on a.b"),
        (
            "AMQ229213: User: me does not have permission='CREATE_DURABLE_QUEUE' for queue q on address a",
            True,
            "CREATE_DURABLE_QUEUE on q",
        ),
        ("User name [me] or password is invalid.", False, "correct user and password"),
        ("AMQ339016 Error creating subscription cues", False, "permission CONSUME"),
        ("AMQ339011 Error sending message CoreMessage[messageID=1, address=out.q, size=3]]@1", True, "SEND on out.q"),
        ("something else", False, "correct the login, the queue"),
    ],
)
def test_refusals_of_stomp_name_the_right_that_is_missing(said: str, denied: bool, remedy: str) -> None:
    """And whether the end of another consumer may help; the user's name shows in none."""
    error = refusal(said, StompAddress("stomp://me:secret@host", "here"))
    assert error.denied is denied
    assert remedy in error.remedy
    assert "me" not in str(error).split()


def test_error_frame_that_says_the_same_twice_is_shown_once() -> None:
    """Brokers put the text into the header and into the body."""
    assert said_by(Frame("ERROR", {"message": "No: way"}, b"No way\n\tat java")) == "No way"
    assert said_by(Frame("ERROR", {"message": "No"}, b"because")) == "No: because"
    assert said_by(Frame("ERROR", {})) == "ERROR"
