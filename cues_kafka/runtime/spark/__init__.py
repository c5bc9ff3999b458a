"""Runs plain processors on Spark (D1 to D6): Spark plans, schedules and retries; the core decides what is delivered.

A streaming query for each processor: `ranges` says how far there is something to read, one row for each partition;
`work` carries the graph to the Spark tasks; in each of them a `slot` delivers one range in Kafka transactions of its
own. The newest record of the backing topic is the truth, Spark's checkpoint a hint.
"""
