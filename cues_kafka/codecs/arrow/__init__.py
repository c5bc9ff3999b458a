"""Messages as columns of Arrow: the only package of codecs that imports pyarrow. It is imported where columns are."""
