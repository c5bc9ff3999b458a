"""Bytes to values and back: the codecs of user topics. `lookup.codec_for` makes the codec of a declaration."""
