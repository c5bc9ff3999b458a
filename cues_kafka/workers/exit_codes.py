"""What a worker process ends with, and what its supervisor makes of that."""

from __future__ import annotations

from typing import Final

GIVE_UP: Final = frozenset({2, 3})
"""Exit codes after which no restart helps. `WRONG`: another process has the same instance name, see `DECIDES`.
`FAILED`: a task stopped under --fail-fast."""

DECIDES: Final = 1
"""The worker whose instance name decides which of two supervisors ends. If they start together, each may take
some of the other one's names. Only one of them keeps the name of this worker. The other one ends, and the first one
restarts its other workers."""

BROKEN: Final = 1

WRONG: Final = 2

FAILED: Final = 3

REFUSED: Final = 4
"""A worker was refused at its start: by its graph, a setting, the plan, or the brokers' login. The supervisor ends,
unless one of its workers has lived: in that case new code is wrong, or logins cannot be checked just now. The other
workers go on, and the refused one is restarted until the cause is fixed."""

REFUSAL: Final = "refused at its start: the error that it printed says why, and what to do"
"""The cause of such an end, for the log."""

DONE: Final = 5
"""A worker whose work has an end, as with `--trigger available-now` on Spark, has delivered everything."""

UNDONE: Final = 6
"""Work that has an end failed. Its user starts it again when the cause is gone."""

ENDS: Final = {DONE: 0, UNDONE: BROKEN}
"""What the supervisor of such work ends with. From other workers these are exit codes of a user's function, and deaths
as any other."""
