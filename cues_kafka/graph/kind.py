"""The kind of a processor, which follows from what it declares.

A processor's inputs have a shape, its outputs have one, and the kind is the name of the pair::

                 outputs: none       one        many
    inputs: single        sink       pipe       fork
            join          join-sink  join       join-fork
            alts          alts-sink  alts       alts-fork

With tailers or appenders it is ``imperative`` as well, because it reads and writes by itself.

A **join is a zip**: it takes the k-th message of each input, for streams that advance in lockstep. To find the customer
of an order, use state, a table, or a DataFrame on Spark.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

InputShape: TypeAlias = Literal["single", "join", "alts"]
OutputShape: TypeAlias = Literal["none", "one", "many"]

KINDS: dict[tuple[InputShape, OutputShape], str] = {
    ("single", "none"): "sink",
    ("single", "one"): "pipe",
    ("single", "many"): "fork",
    ("join", "none"): "join-sink",
    ("join", "one"): "join",
    ("join", "many"): "join-fork",
    ("alts", "none"): "alts-sink",
    ("alts", "one"): "alts",
    ("alts", "many"): "alts-fork",
}
