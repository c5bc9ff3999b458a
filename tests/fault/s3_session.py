"""The session of all S3 stores in the processes of a test, with the description of S3 that it reads once."""

from __future__ import annotations

import asyncio

import s3fs  # noqa: F401 - a process that is forked has it
from aiobotocore.session import get_session

SESSION = get_session()
"""Each client of a session of its own reads 2 MB of JSON first; processes that are forked have read them."""

asyncio.run(SESSION.get_service_model("s3"))
