"""The compiled part of the hot loop: records are enqueued by column, and acknowledgements counted, without Python.

It also reads and writes JSON by column: `codecs.arrow.compiled` says how it is asked.

It is the module `_cues_kafka`, made of the C files here when the package is built where there is a C compiler. Without
it `brokers.kafka.columns` does the same in Python, and nothing else differs.
"""
