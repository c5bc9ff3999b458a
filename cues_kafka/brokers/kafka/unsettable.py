"""Tells which setting of a new topic a cluster has refused, where its answer is about a setting."""

from __future__ import annotations

import re
from typing import Final

from confluent_kafka import KafkaError

from cues_kafka.brokers.kafka.classify import name
from cues_kafka.plan.topics import MAY_LACK
from cues_kafka.ports.facts import NewTopic

UNSETTABLE: Final = {"POLICY_VIOLATION", "INVALID_CONFIG", "INVALID_REQUEST"}
"""How clusters answer where a setting of a new topic is not for their users to set."""

_IN_GENERAL: Final = re.compile(r"config|propert(?:y|ies)|setting", re.IGNORECASE)


def refused_setting(topic: NewTopic, error: KafkaError) -> str:
    """
    The setting to leave out, of those that the topic may lack; empty: the refusal has another cause.

    The same codes also refuse a name, a number of partitions or copies, and a value that the user declared. So the
    answer must name the setting, or speak of settings without naming one. A policy may refuse without a reason.
    """
    code, text = name(error), error.str()
    if code not in UNSETTABLE or not topic.may_lack:
        return ""
    if named := [setting for setting in (*topic.config, *MAY_LACK) if _names(text, setting)]:
        return next((setting for setting in topic.may_lack if setting in named), "")
    silent = text == KafkaError(error.code()).str() and code != "INVALID_REQUEST"
    return topic.may_lack[0] if silent or _IN_GENERAL.search(text.replace(topic.name, "")) else ""


def _names(text: str, setting: str) -> bool:
    """Whether a text names a setting, which may be by the broker's own name, such as `log.segment.bytes`."""
    return re.search(rf"(?<![\w-]){re.escape(setting)}(?![\w-]|\.\w)", text) is not None
