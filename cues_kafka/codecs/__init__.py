"""Bytes to values and back: the codecs of user topics, and the Avro bytes of our own records.

`lookup.codec_for` finds the codec of a declaration. Importing this package loads no codec library.
"""

from __future__ import annotations

from cues_kafka.codecs.lookup import KEYS, codec_for

__all__ = ["KEYS", "codec_for"]
