"""Processors on Spark: Spark plans, schedules and retries; the core decides what is delivered (D1 to D6, T1 to T4).

`query` keeps a streaming query running for each processor. `source` says how far there are messages to read. If the
input's partitions stay apart, `direct` delivers each range in Kafka transactions of its own. Otherwise `staged`
prepares each micro-batch in files and publishes it once. The newest record of the backing topic decides; Spark's
checkpoint is a hint.
"""
