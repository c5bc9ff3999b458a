"""Runs plain processors on Spark (D1 to D6): Spark plans, schedules and retries; the core decides what is delivered.

`query` keeps a streaming query running for each processor. `source` says how far there is something to read. Where the
input's partitions stay apart, `direct` delivers each range in Kafka transactions of its own; else `staged` prepares
each micro-batch in files, and publishes it once. The newest record of the backing topic is the truth, Spark's
checkpoint a hint.
"""
