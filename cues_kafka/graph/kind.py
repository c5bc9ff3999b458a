"""The kind of a processor: derived from what is declared, never declared itself.

A processor has a shape on either side, and its kind is the name of the pair::

                 outputs: none       one        many
    inputs: single        sink       pipe       fork
            join          join-sink  join       join-fork
            alts          alts-sink  alts       alts-fork

With tailers or appenders it is ``imperative`` as well, because it reads and writes by itself.

A **join is a zip**: the k-th message of each input, for streams that are made in lockstep. "The order with its
customer" is state, a table, or a DataFrame on Spark.
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


def kind(inputs: InputShape, outputs: OutputShape, *, imperative: bool = False) -> str:
    """
    The kind's name.

    Args:
        inputs: shape of the inputs.
        outputs: shape of the outputs.
        imperative: whether there are tailers or appenders.
    """
    name = KINDS[inputs, outputs]
    return f"imperative {name}" if imperative else name
