"""The page for people who come from IBM Streams' messaging toolkit: each parameter of each operator has its row."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "messaging-toolkit.md"
SHARED = """
appConfigName userPropName passwordPropName connection access connectionDocument reconnectionPolicy reconnectionBound
period initDelay triggerCount codepage sslConnection keyStore keyStorePassword trustStore trustStorePassword
"""
OPERATORS = {
    "KafkaConsumer": """topic pattern partition groupId staticGroupMember startPosition startPositionStr startOffset
        startTime commitCount commitPeriod triggerCount consumerPollTimeout outputMessageAttributeName
        outputKeyAttributeName outputTopicAttributeName outputPartitionAttributeName outputOffsetAttributeName
        outputTimestampAttributeName messageAttribute keyAttribute propertiesFile kafkaProperty appConfigName
        appConfigPropertyName clientId jaasFile jaasFilePropName sslDebug userLib""",
    "KafkaProducer": """topic topicAttribute keyAttribute messageAttribute partitionAttribute timestampAttribute
        consistentRegionPolicy flush guaranteeOrdering outputErrorsOnly""",
    "JMSSource": f"""{SHARED} messageSelector messageIDOutAttrName jmsDestinationOutAttrName jmsDeliveryModeOutAttrName
        jmsExpirationOutAttrName jmsPriorityOutAttrName jmsMessageIDOutAttrName jmsTimestampOutAttrName
        jmsCorrelationIDOutAttrName jmsReplyToOutAttrName jmsTypeOutAttrName jmsRedeliveredOutAttrName""",
    "JMSSink": f"{SHARED} maxMessageSendRetries messageSendRetryDelay consistentRegionQueueName",
    "MQTTSource": """serverURI connection connectionDocument userID password clientID topics qos qosStr topicOutAttrName
        dataAttributeName messageQueueSize commandTimeout keepAliveInterval reconnectionBound period sslProtocol""",
    "MQTTSink": "topic topicAttributeName qos qosAttributeName retain clientID commandTimeout keepAliveInterval",
    "RabbitMQSource": """hostAndPort URI username password virtualHost exchangeName exchangeType queueName routingKey
        routingKeyAttribute messageAttribute msgHeaderAttribute automaticRecovery setNetworkRecoveryInterval""",
    "RabbitMQSink": "deliveryMode maxMessageSendRetries messageSendRetryDelay exchangeName routingKeyAttribute",
    "XMSSource": "reconnectionPolicy reconnectionBound period initDelay connection access connectionDocument",
    "XMSSink": "reconnectionPolicy reconnectionBound period connection access connectionDocument",
}
"""By operator its parameters, as the toolkits declare them (messaging 2020, kafka 3.2.5)."""


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
