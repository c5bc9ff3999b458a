"""Changes the topics of a cluster as a plan says."""

from __future__ import annotations

from cues_kafka.plan.plan import Plan
from cues_kafka.plan.refusals import refuse_unsafe
from cues_kafka.ports.broker import Broker


def apply_plan(planned: Plan, broker: Broker) -> None:
    """
    Create the topics of a plan, and give the framework's own topics the partitions and settings that they need.

    Raises:
        ConfigError: the plan is refused, or the cluster gave new topics settings of its own that lose data.
        BrokerError: the cluster refused.
    """
    planned.refuse()
    # New topics first, and looked at: a cluster that gives them settings that lose data must not get partitions either.
    broker.create(planned.create)
    if created := [topic.name for topic in planned.create]:
        refuse_unsafe(broker.facts(created), created)
    for growth in planned.grow:
        broker.add_partitions(growth.topic, growth.wanted)
    for setting in planned.alter:
        broker.configure(setting.topic, {setting.name: setting.wanted})
