"""The page for people who come from IBM Streams' messaging toolkit: each parameter of each operator has its row."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "messaging-toolkit.md"
LOGIN = "appConfigName userPropName passwordPropName"
STORES = "keyStore keyStorePassword trustStore trustStorePassword"
ACCESS = "connection access connectionDocument reconnectionPolicy reconnectionBound period"
PROPERTIES = "Destination DeliveryMode Expiration Priority MessageID Timestamp CorrelationID ReplyTo Type Redelivered"
GIVEN = " ".join(f"jms{one}OutAttrName jms{one}OutAttributeName" for one in PROPERTIES.split())
JMS = f"{LOGIN} {STORES} {ACCESS} sslConnection sslDebug classLibs codepage vmArg jmsHeaderProperties"
KAFKA = """messageAttribute keyAttribute topic propertiesFile kafkaProperty appConfigName appConfigPropertyName clientId
    jaasFile jaasFilePropName sslDebug krb5Debug userLib vmArg"""
MQTT = f"""{LOGIN} {STORES} serverURI connection connectionDocument sslProtocol clientID userID password commandTimeout
    keepAliveInterval dataAttributeName qos reconnectionBound period vmArg"""
RABBITMQ = f"""{LOGIN} hostAndPort URI username password virtualHost exchangeName exchangeType messageAttribute
    routingKeyAttribute msgHeaderAttribute automaticRecovery setNetworkRecoveryInterval useSSL sslProtocol keyStorePath
    keyStorePassword keyStoreType keyStoreAlgorithm trustStorePath trustStorePassword trustStoreType
    trustStoreAlgorithm vmArg"""
OPERATORS = {
    "KafkaConsumer": f"""{KAFKA} pattern partition groupId staticGroupMember startPosition startPositionStr startOffset
        startTime commitCount commitPeriod triggerCount consumerPollTimeout outputMessageAttributeName
        outputKeyAttributeName outputTopicAttributeName outputPartitionAttributeName outputOffsetAttributeName
        outputTimestampAttributeName""",
    "KafkaProducer": f"""{KAFKA} topicAttribute partitionAttribute timestampAttribute consistentRegionPolicy flush
        guaranteeOrdering outputErrorsOnly""",
    "JMSSource": f"""{JMS} initDelay triggerCount messageSelector messageIDOutAttrName
        jmsHeaderPropertiesOutAttributeName {GIVEN}""",
    "JMSSink": f"{JMS} maxMessageSendRetries messageSendRetryDelay consistentRegionQueueName",
    "MQTTSource": f"{MQTT} topics qosStr topicOutAttrName messageQueueSize",
    "MQTTSink": f"{MQTT} topic topicAttributeName qosAttributeName retain",
    "RabbitMQSource": f"{RABBITMQ} queueName routingKey",
    "RabbitMQSink": f"{RABBITMQ} deliveryMode maxMessageSendRetries messageSendRetryDelay",
    "XMSSource": f"{ACCESS} initDelay",
    "XMSSink": ACCESS,
}
"""By operator its parameters, as the toolkits declare them: messaging, and kafka, jms, mqtt and rabbitmq behind it."""


def sections() -> dict[str, list[list[str]]]:
    """The rows of the tables of each section, as cells."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return {
        title: [
            [cell.strip() for cell in line.strip("|").split("|")] for line in body.splitlines() if line.startswith("| ")
        ]
        for title, body in zip(found[1::2], found[2::2], strict=True)
    }


@pytest.mark.parametrize("operator", OPERATORS)
def test_each_parameter_of_an_operator_has_its_equal_or_a_reason(operator: str) -> None:
    """In the section of the operator, or in the one for all of them."""
    own = [rows for title, rows in sections().items() if operator in title or title.startswith("What holds for all")]
    assert len(own) == 2
    told = {name: row[1] for rows in own for row in rows for name in re.findall(r"`(\w+)`", row[0])}

    assert not set(OPERATORS[operator].split()) - told.keys()
    assert all(told[name] for name in OPERATORS[operator].split())


def test_each_operator_says_what_drain_checkpoint_and_reset_are() -> None:
    """With a test where the operator has its equal."""
    rows = sections()["Drain, checkpoint, reset and reset to initial"]
    told = {name: row for row in rows[1:] for name in re.findall(r"\b(?:Kafka|JMS|MQTT|RabbitMQ|XMS)\w+", row[0])}

    assert told.keys() == OPERATORS.keys()
    assert all(len(row) == 6 for row in told.values())
    assert all("test_" in row[5] for row in told.values() if row[1] != "not yet")
