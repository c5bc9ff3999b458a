"""Why a graph must not run on a cluster, and what its operator should know before it runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from cues_kafka.errors import ConfigError
from cues_kafka.graph.declare import CodecSpec, Json, Raw
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.durations import milliseconds
from cues_kafka.graph.formats import JsonSchema, SchemaSpec
from cues_kafka.graph.names import control_topic, hint, quoted, status_topic
from cues_kafka.graph.partitioners import CUSTOM, MURMUR2, rule_of
from cues_kafka.graph.placed import keyed_topics
from cues_kafka.graph.processor import Processor
from cues_kafka.plan.acls import grant
from cues_kafka.plan.processors import FeedPlan, FramePlan, ProcessorPlan
from cues_kafka.plan.topics import (
    DAY_MS,
    MIN_IN_SYNC,
    REPLICATION,
    Sides,
    config_of,
    replication,
    retention_ms,
    topics_to_ask,
)
from cues_kafka.ports.facts import ClusterFacts, TopicFacts
from cues_kafka.words import SERVER, count

LEAST_BYTES = 65_536
"""The least `max.message.bytes` of a topic that is written. It bounds a batch of records, so each batch of a task keeps
to the least of its topics. Below this a batch holds only a few messages, or not even an error message (16,500)."""


def refusals_of(
    graph: Graph,
    planned: tuple[Collection[ProcessorPlan], Collection[FramePlan]],
    sizes: Mapping[str, int | None],
    facts: ClusterFacts | None,
) -> Iterator[str]:
    """Why the graph must not run, a sentence with the remedy for each reason."""
    processors, frames = planned
    for one in processors:
        yield from _unequal_inputs(graph.processors[one.name], sizes)
        yield from _unequal_places(graph, graph.processors[one.name], sizes)
        yield from _unequal_keys(graph, graph.processors[one.name], sizes)
        yield from _compacted_join(graph.processors[one.name], one.compacted)
        yield from _tailers_without_exactly_once(graph.processors[one.name], one.strategy)
    yield from _placed_by_others(graph)
    if facts is None:
        return
    yield from _missing_inputs(graph, facts)
    yield from _too_many_copies(graph, facts)
    for one in processors:
        yield from _wrong_cleanup_policy(
            (one.backing, *(changelog for _, changelog in one.changelogs), *filter(None, (one.journal,))), facts
        )
        yield from _too_wide_backing(one, facts)
        yield from _split_stores(graph.processors[one.name], one, facts)
        yield from _split_rows(graph.processors[one.name], one, facts)
        yield from _compacted_tailers(graph.processors[one.name], facts)
    for frame in frames:
        yield from _wrong_cleanup_policy((frame.backing,), facts)
    if graph.cuts is not None:
        yield from _wrong_cleanup_policy((control_topic(graph.name),), facts)
    yield from _small_batches(graph, facts)
    if facts.brokers >= REPLICATION and (
        frames or graph.feeds or any(one.strategy != "at-least-once" for one in processors)
    ):
        for topic in sorted(facts.topics.keys() & {*topics_to_ask(graph)}):
            yield from unsafe_settings(facts.topics[topic])


def _unequal_places(graph: Graph, processor: Processor, sizes: Mapping[str, int | None]) -> Iterator[str]:
    """Topics whose keys must meet, and whose writers place them by different rules."""
    topics = [topic for topic in keyed_topics(processor) if sizes[topic] != 1]
    rules = {topic: graph.topic(topic).partitioner for topic in topics}
    if len({rule_of(one) for one in rules.values()}) > 1:
        shown = ", ".join(f"{topic}: {rule}" for topic, rule in rules.items())
        yield (
            f"The topics of {processor.name} are declared with different partitioners ({shown}), so one key is in "
            "different partitions of them, and a task does not find what belongs together. Put rekey(...) between one "
            "of them and the processor, which places its keys by murmur2; or look a table up as a GlobalTable(...)."
        )


def _unequal_keys(graph: Graph, processor: Processor, sizes: Mapping[str, int | None]) -> Iterator[str]:
    """Topics whose keys must meet, and whose codecs write one key as other bytes, which partitioners place apart."""
    topics = [topic for topic in keyed_topics(processor) if sizes[topic] != 1]
    forms = {topic: form for topic in topics if (form := _form(graph.topic(topic).key_codec))}
    if len({*forms.values()}) > 1:
        shown = ", ".join(f"{topic}: {form}" for topic, form in forms.items())
        yield (
            f"The topics of {processor.name} write their keys in different forms ({shown}), so one key is in different "
            "partitions of them, and a task does not find what belongs together. Declare one key_codec= for them, if "
            "their writers use it. Otherwise put rekey(...) between one of them and the processor; or look a table up "
            "as a GlobalTable(...)."
        )


def _form(codec: CodecSpec | None) -> str:
    """What the bytes of keys are; empty: only a codec of the user knows."""
    if codec is None or isinstance(codec, Raw):
        return "plain text or bytes"
    if isinstance(codec, SchemaSpec):
        plain = isinstance(codec, JsonSchema) and not codec.registry
        return "Json" if plain else f"{type(codec).__name__}{' with a registry' if codec.registry else ''}"
    return "Json" if isinstance(codec, Json) else ""


def _placed_by_others(graph: Graph) -> Iterator[str]:
    """Topics of the graph's own, although their partitioner is said to be another one than ours."""
    outputs = (topic for one in graph.all_processors.values() for topic in one.output_topics)
    for topic in sorted({*outputs, *graph.error_topics()}):
        if rule_of(rule := graph.topic(topic).partitioner) not in (MURMUR2, CUSTOM):
            yield (
                f"Topic {topic!r} is declared with partitioner={rule!r}, and the graph writes it: cues-kafka places "
                "keys by murmur2, so a key would be in two partitions. Leave partitioner= out, and write what other "
                "programs send to a topic of their own."
            )


def _too_many_copies(graph: Graph, facts: ClusterFacts) -> Iterator[str]:
    """New topics that want more brokers than there are. A cluster of one or two is for development, and has fewer."""
    missing = [topic for topic in topics_to_ask(graph) if topic not in facts.topics]
    copies = {topic: replication(graph, topic, None) for topic in missing}
    if facts.brokers >= REPLICATION and copies and max(copies.values()) > facts.brokers:
        yield (
            f"The graph declares replication={max(copies.values())} for new topics, and the cluster has "
            f"{count(facts.brokers, 'broker')}. Declare at most {facts.brokers}, or add brokers."
        )


def _alter(topic: str, setting: str) -> str:
    return f"Set it: kafka-configs {SERVER} --alter --topic {topic} --add-config {setting}"


def unread_settings(graph: Graph, facts: ClusterFacts | None) -> Iterator[str]:
    """Topics whose settings could not be read; one of these may break the guarantee, such as a short retention."""
    if facts is not None and (topics := [topic for topic in topics_to_ask(graph) if topic in facts.unchecked]):
        command = grant(f"User:{facts.user or 'NAME'}", ["DescribeConfigs"], "topic", topics)
        who = f"user `{facts.user}`" if facts.user else "the user of this client"
        yield (
            f"Not checked: {who} may not read the settings of topics {', '.join(f'`{topic}`' for topic in topics)}. "
            f"They decide how long records are kept and how large they may be. Grant it with `{command}`, or set "
            "accept_unchecked=True in Kafka(...) to run without these checks."
        )


def side_warnings(graph: Graph, sides: Sides, facts: ClusterFacts | None) -> Iterator[str]:
    """Why a topic that the graph can work without is not used, although the settings ask for it."""
    lost = {status_topic(graph.name): "`cues-kafka status` shows only what the cluster knows"} if sides.status else {}
    lost |= {control_topic(graph.name): "`cues-kafka pause` does not work"} if sides.control else {}
    for topic in sides.topics(graph):
        known = None if facts is None else facts.topics.get(topic)
        policy = "compact" if known is None else known.config.get("cleanup.policy", "compact")
        if policy != "compact":
            yield (
                f"{topic!r} exists with cleanup.policy={policy}, so it is left alone, and {lost[topic]}. "
                f"{_alter(topic, 'cleanup.policy=compact')}; or if it belongs to another program, give the graph "
                "another name."
            )


def undeclared_inputs(graph: Graph) -> Iterator[tuple[str, str]]:
    """(Processor, topic) of each input that nothing in the graph writes or declares."""
    made = {*graph.topics_written(), *graph.topics}
    for name, part in graph.all_processors.items():
        yield from ((name, topic) for topic in part.read_topics if topic not in made)


def _missing_inputs(graph: Graph, facts: ClusterFacts) -> Iterator[str]:
    for name, topic in undeclared_inputs(graph):
        if topic not in facts.topics:
            yield (
                f"{name} reads {topic!r}, which does not exist and which nothing in the graph writes"
                f"{hint(topic, graph.topics_written())}. Create it, or declare Source({topic!r}) or "
                f"topics={{{topic!r}: Topic(...)}} to have it created."
            )


def misspelt_inputs(graph: Graph) -> Iterator[str]:
    """Inputs whose names are nearly a topic of the graph: offline it is not known which topics exist."""
    for name, topic in undeclared_inputs(graph):
        if near := hint(topic, graph.topics_written()):
            yield (
                f"{name} reads {topic!r}, which nothing in the graph writes{near}. Correct the name; if the topic "
                "exists on the cluster under this name, plan without --offline."
            )


def _unequal_inputs(processor: Processor, sizes: Mapping[str, int | None]) -> Iterator[str]:
    counts = {topic: sizes[topic] for topic in processor.input_topics if sizes[topic] is not None}
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{topic}: {count}" for topic, count in counts.items())
        yield (
            f"The inputs of {processor.name} ({processor.kind}) have different numbers of partitions ({shown}). Task p "
            "reads partition p of each, so make them equal: add partitions to the smaller, or copy it into a wider one."
        )
    lead = sizes[processor.lead]
    for name, table in processor.tables.items():
        width = sizes[table.topic]
        if table.kind == "table" and None not in (lead, width) and lead != width:
            yield (
                f"{processor.name} looks up {table.topic!r} ({name}), which has {count(width or 0, 'partition')}, and "
                f"its input {processor.lead!r} has {lead}. Task p holds partition p of it, so a task would not find "
                f"its keys. Write GlobalTable({table.topic!r}), which each process holds completely; or rekey one of "
                "them into a topic with as many partitions as the other."
            )
    for topic in processor.tailers.values():
        if lead is not None and (sizes[topic] or lead) < lead:
            yield (
                f"{processor.name} tails {topic!r}, which has {count(sizes[topic] or 0, 'partition')}, but its inputs "
                f"have {lead}. Task p reads partition p of it, so add partitions to {topic!r}."
            )


def _compacted_join(processor: Processor, compacted: Iterable[str]) -> Iterator[str]:
    for topic in compacted if processor.input_shape == "join" else ():
        yield (
            f"The join {processor.name} reads {topic!r}, which is compacted. A join pairs the k-th messages of its "
            "inputs. Compaction removes messages, so wrong ones would be paired without an error. Read a topic that "
            "keeps every message: let its writer send to a second topic with cleanup.policy=delete."
        )


def _tailers_without_exactly_once(processor: Processor, strategy: str) -> Iterator[str]:
    if processor.tailers and strategy != "exactly-once":
        yield (
            f"{processor.name} has tailers and runs {strategy}: their positions could not be committed together with "
            "the results of its steps. Give it strategy='exactly-once', or have it read the topics as inputs."
        )


def _compacted_tailers(processor: Processor, facts: ClusterFacts) -> Iterator[str]:
    """S5 cannot hold: of a compacted topic an older view cannot be read again."""
    for name, topic in processor.tailers.items() if processor.has_effects else ():
        known = facts.topics.get(topic)
        if known is not None and "compact" in known.config.get("cleanup.policy", ""):
            why = "effects=" if processor.effects else "no outputs, so it counts as a sink"
            yield (
                f"{processor.name} has {why}, and its tailer {name!r} reads {topic!r}, which is compacted: a retry "
                "might see other messages than the call before it did, and repeat its effect in another way. Make "
                f"{topic!r} an input and keep what is needed in a Store, or look it up as a Table in a processor "
                "without effects."
            )


def _wrong_cleanup_policy(topics: Iterable[str], facts: ClusterFacts) -> Iterator[str]:
    for topic in topics:
        known = facts.topics.get(topic)
        policy = known.config.get("cleanup.policy", "compact") if known else "compact"
        if policy != "compact":
            yield (
                f"Topic {topic!r} has cleanup.policy={policy}, so Kafka would delete what tasks recover from. Set it "
                f"to compact alone: kafka-configs {SERVER} --alter --topic {topic} --add-config cleanup.policy=compact."
            )


def _too_wide_backing(planned: ProcessorPlan, facts: ClusterFacts) -> Iterator[str]:
    backing = facts.topics.get(planned.backing)
    if backing is not None and planned.partitions is not None and backing.partitions > planned.partitions:
        yield (
            f"{planned.backing!r} has {count(backing.partitions, 'partition')}, but the inputs of {planned.name} have "
            f"{planned.partitions}. Partitions never become fewer, so these are other inputs than before. Bind the "
            "processor to the old topics, or give it a new name=. Under a new name it starts at its start=, and with "
            "'earliest' it delivers again what its inputs hold, so outputs repeat."
        )


def refused_feeds(feeds: Iterable[FeedPlan], facts: ClusterFacts | None) -> Iterator[str]:
    """Feeds whose place is in a topic that cannot hold it, or in one of another number of parts."""
    if facts is None:
        return
    for feed in feeds:
        yield from _wrong_cleanup_policy((feed.backing,), facts)
        known = facts.topics.get(feed.backing)
        if known is not None and known.partitions != feed.parts:
            yield (
                f"Feed {feed.name} has {count(feed.parts, 'part')}, and {feed.backing!r} holds the places of "
                f"{known.partitions}. Another part would read its messages again, or no part would. Declare "
                f"{count(known.partitions, 'part')} again, or give the feed a new name=: then it begins at the "
                "beginning of its source, and what is still there comes again."
            )


def _split_stores(processor: Processor, planned: ProcessorPlan, facts: ClusterFacts) -> Iterator[str]:
    """Stores whose input was given more partitions: messages of a key may come to another task than its entry."""
    for store, changelog in planned.changelogs:
        known = facts.topics.get(changelog)
        if known is None or processor.state[store].per_task or known.partitions >= (planned.partitions or 0):
            continue
        yield (
            f"{planned.inputs[0][1]!r} has {count(planned.partitions or 0, 'partition')}, {changelog!r} has "
            f"{known.partitions}. Messages of a key may now come to another task than the entry that they need. Run "
            f"'cues-kafka rebuild MODULE:GRAPH {planned.name}', which builds the stores again from the input. Where it "
            f"cannot, give {planned.name} a new name=: under it the store is built from start= on, and outputs repeat. "
            "Or say Store(per_task=True), if its entries do not depend on keys."
        )


def _split_rows(processor: Processor, planned: ProcessorPlan, facts: ClusterFacts) -> Iterator[str]:
    """E2: upserts whose input was given more partitions, of which two do not say which message is newer."""
    backing, wanted = facts.topics.get(planned.backing), planned.partitions or 0
    if not processor.placed or backing is None or backing.partitions >= wanted:
        return
    yield (
        f"{planned.inputs[0][1]!r} has {count(wanted, 'partition')}, {planned.backing!r} has {backing.partitions}. "
        f"Messages of a key may now come to another task of {planned.name} than the one that wrote its row, and their "
        "offsets do not say which is newer. Once all messages from before are delivered (`cues-kafka verify "
        f"MODULE:GRAPH --complete`), accept it: kafka-topics {SERVER} --alter --topic {planned.backing} --partitions "
        f"{wanted}. "
        "From then on a message of the other partition always takes the place of the row, so never reset "
        f"{planned.name} to a place before."
    )


def _small_batches(graph: Graph, facts: ClusterFacts) -> Iterator[str]:
    """Topics that take smaller batches than tasks write. An error message must always fit its topic, too."""
    for topic in sorted({*graph.error_topics(), *_output_topics(graph)}):
        most = config_of(graph, topic, facts).get("max.message.bytes")
        if most is not None and int(most) < LEAST_BYTES:
            fix = f"Declare it in Topic(config={{'max.message.bytes': '{LEAST_BYTES}'}}), or leave it out"
            if topic in facts.topics:
                fix = _alter(topic, f"max.message.bytes={LEAST_BYTES}")
            yield (
                f"Topic {topic!r} has max.message.bytes={most}, which bounds a whole batch of records; tasks need at "
                f"least {LEAST_BYTES}. {fix}."
            )


def _output_topics(graph: Graph) -> set[str]:
    return {topic for part in graph.all_processors.values() for topic in part.output_topics}


def unsafe_settings(topic: TopicFacts) -> Iterator[str]:
    """The conditions of the guarantee (docs/guarantee.md), as far as the facts show the settings."""
    if topic.replication < REPLICATION:
        yield (
            f"Topic {topic.name!r} has {count(topic.replication, 'replica')}, so the loss of a broker can lose "
            f"data. Give it {REPLICATION}: kafka-reassign-partitions, or recreate it."
        )
    in_sync = topic.config.get("min.insync.replicas")
    if in_sync is not None and int(in_sync) < MIN_IN_SYNC:
        yield (
            f"Topic {topic.name!r} has min.insync.replicas={in_sync}, so an acknowledged record may be on one broker "
            f"only. {_alter(topic.name, f'min.insync.replicas={MIN_IN_SYNC}')}."
        )
    if topic.config.get("unclean.leader.election.enable", "false") == "true":
        yield (
            f"Topic {topic.name!r} allows unclean leader election, which drops acknowledged records. "
            f"{_alter(topic.name, 'unclean.leader.election.enable=false')}."
        )


def refuse_unsafe(facts: ClusterFacts, created: Collection[str]) -> None:
    """
    Check topics that were created a moment ago: the cluster may have refused to set what was asked for.

    Raises:
        ConfigError: what it has set instead loses data.
    """
    if facts.brokers < REPLICATION:
        return  # for development, as the plan warns
    found = [why for name in created if name in facts.topics for why in unsafe_settings(facts.topics[name])]
    if found:
        reasons = "".join(f"\n  - {why}" for why in found)
        raise ConfigError(f"Topics were created, and nothing was started, because they can lose data:{reasons}")


def warnings_of(graph: Graph, processors: Iterable[ProcessorPlan], facts: ClusterFacts | None) -> Iterator[str]:
    """What is allowed but weakens something, a sentence each."""
    copies = max((one.replication for one in facts.topics.values()), default=0) if facts is not None else 0
    if facts is not None and facts.brokers < copies:
        yield (
            f"Topics of this graph have {copies} replicas, and {count(facts.brokers, 'broker')} answered, so at least "
            f"{copies - facts.brokers} {'is' if copies - facts.brokers == 1 else 'are'} down. Start all brokers before "
            f"you create topics: those that are created now get {count(facts.brokers, 'replica')}, and keep that "
            f"number. If the cluster shall have no more brokers, declare replication={facts.brokers}, and change the "
            "topics that exist with kafka-reassign-partitions."
        )
    elif facts is not None and facts.brokers < REPLICATION:
        yield (
            f"The cluster has {count(facts.brokers, 'broker')}, but the guarantee needs {REPLICATION}: a lost disk can "
            "lose data. Use it for development."
        )
    for group in graph.topology.cycles:
        yield f"Messages can go round in a cycle: {quoted(group)}. Make sure that they come to an end."
    for topic in sorted(_output_topics(graph)):
        if not graph.topic(topic).provenance:
            yield f"Topic {topic!r} has provenance=False, so verify cannot say what in it is lost or duplicated."
    yield from _transient_inputs(graph)
    yield from _other_settings(graph, facts)
    yield from _split_transactions(graph, facts)
    yield from outgrown(processors)
    for one in processors:
        if one.strategy != "exactly-once":
            effect = "repeat" if one.strategy == "at-least-once" else "lose"
            yield f"{one.name} runs {one.strategy}: a crash may {effect} messages."
        yield from _short_retention(graph, graph.processors[one.name], facts)
        yield from _compacted_alts(graph.processors[one.name], one.compacted)
    for frame in graph.dataframes:
        yield f"{frame} is a processor of DataFrames: the native runtime refuses it, Spark runs it."


def _transient_inputs(graph: Graph) -> Iterator[str]:
    """What a transient topic loses, it loses whether it was delivered or not."""
    for name, part in graph.all_processors.items():
        for topic in dict.fromkeys(part.read_topics):
            if (kept := graph.topic(topic).transient) is None:
                continue
            days = milliseconds(kept, "transient") / DAY_MS
            after = count(int(days), "day") if days.is_integer() else f"{days:.3g} days"
            yield (
                f"{name} reads {topic!r}, which is transient: Kafka deletes its messages after {after}, delivered or "
                f"not. Run {name} at least that often; a task that comes too late stops, and says what it did not "
                "deliver."
            )


def _other_settings(graph: Graph, facts: ClusterFacts | None) -> Iterator[str]:
    """A topic that exists keeps the settings that it has, whatever is declared."""
    known = {} if facts is None else facts.topics
    for topic in (one for one in graph.topics_used() if one in known):
        copies = graph.topic(topic).replication
        if copies is not None and copies != known[topic].replication:
            yield (
                f"Topic {topic!r} has {count(known[topic].replication, 'replica')}, and the graph declares {copies}. A "
                "topic that exists is left as it is. Change it with kafka-reassign-partitions, or declare what it has."
            )
        for name, wanted in graph.topic(topic).config.items():
            has = known[topic].config.get(name)
            if has is not None and {*has.split(",")} != {*wanted.split(",")}:
                value = f"[{wanted}]" if "," in wanted else wanted
                yield (
                    f"Topic {topic!r} has {name}={has}, and the graph declares {wanted}. A topic that exists is left "
                    f"as it is. {_alter(topic, f'{name}={value}')}; or declare what it has."
                )


def _split_transactions(graph: Graph, facts: ClusterFacts | None) -> Iterator[str]:
    """Topics whose places count as transactions, and have no order."""
    known = {} if facts is None else facts.topics
    for topic in graph.topics_used():
        width = known[topic].partitions if topic in known else graph.topic(topic).partitions
        if width > 1 and "tx" in (graph.topic(topic).meta or ()):
            yield (
                f"Topic {topic!r} has meta={{'tx'}} and {count(width, 'partition')}. Transactions of two partitions "
                "have no order, and comparing them raises TypeError. Give it one partition, or compare within one."
            )


def outgrown(processors: Iterable[ProcessorPlan]) -> Iterator[str]:
    """Warnings of inputs with more partitions than their backing topics, which applying the plan resolves."""
    for one in processors:
        if one.stopped:
            yield (
                f"{one.inputs[0][1]!r} has {count(one.partitions or 0, 'partition')}, {one.backing!r} has "
                f"{one.backing_partitions}: {', '.join(map(str, one.stopped))} cannot start until 'cues-kafka plan "
                "MODULE:GRAPH --apply' has added the missing ones."
            )


def _short_retention(graph: Graph, processor: Processor, facts: ClusterFacts | None) -> Iterator[str]:
    """Outputs have the timestamps of their inputs, by which retention counts."""
    if facts is None:
        return
    kept = {topic: retention_ms(graph, topic, facts) for topic in (*processor.input_topics, *processor.output_topics)}
    oldest = max(processor.input_topics, key=lambda topic: kept[topic])
    for topic in dict.fromkeys(processor.output_topics):
        stamped = config_of(graph, topic, facts).get("message.timestamp.type") == "LogAppendTime"
        if kept[topic] < kept[oldest] and not stamped:
            yield (
                f"Topic {topic!r} keeps messages for {kept[topic] / DAY_MS:g} days, {oldest!r} for longer. Outputs of "
                f"{processor.name} have the timestamps of their inputs, so Kafka deletes outputs of older messages "
                f"soon after they are written. {_alter(topic, 'retention.ms=-1')}, or "
                "message.timestamp.type=LogAppendTime."
            )


def _compacted_alts(processor: Processor, compacted: Iterable[str]) -> Iterator[str]:
    for topic in compacted if processor.input_shape == "alts" else ():
        yield (
            f"{processor.name} (alts) reads {topic!r}, which is compacted. If a worker dies in a batch and compaction "
            "removes a message of that batch before the retry, the task stops. 'cues-kafka accept-loss MODULE:GRAPH "
            f"{processor.name}' then lets it go on with what is left."
        )
