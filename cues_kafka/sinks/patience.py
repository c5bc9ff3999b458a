"""How long a start asks a database or a store of files that does not answer: it may be starting, too."""

from __future__ import annotations

from typing import Final

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_delay, wait_exponential

from cues_kafka.errors import RetriableError
from cues_kafka.observe.log import get_logger

log = get_logger("cues_kafka.sinks")

PATIENCE_S: Final = 60.0
"""For how long it is asked, in seconds."""


def asking(what: str, where: str, patience_s: float) -> Retrying:
    """
    Ask again after each `RetriableError`, ever more seldom, and say so in the log.

    Args:
        what: `database` or `store`, for the log.
        where: how the log names it.
        patience_s: for how long, in seconds; then the last error is raised, with the processor and what to do.
    """
    event = f"{what} not there"

    def tell(state: RetryCallState) -> None:
        why = str(state.outcome.exception()) if state.outcome else ""
        log.warning(event, **{what: where}, why=why, again_in_s=round(state.upcoming_sleep, 2))

    def give_up(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        assert isinstance(error, RetriableError)
        raise RetriableError(
            f"{where}: {error}. Bring the {what} back and start again; or start the other processors meanwhile, with "
            f"--except {where.partition(',')[0]}",
            code=error.code,
        ) from error

    return Retrying(
        retry=retry_if_exception_type(RetriableError),
        stop=stop_after_delay(patience_s),
        wait=wait_exponential(0.1, max=2.0),
        before_sleep=tell,
        retry_error_callback=give_up,
    )
