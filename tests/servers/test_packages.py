"""Programs that were unpacked from packages find the libraries that came with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.servers.packages import Programs


@pytest.mark.parametrize("name", ["libpulse.so.0", "libpulsecommon-16.1.so"])
def test_the_directory_of_each_library_is_searched(tmp_path: Path, name: str) -> None:
    """With numbers behind the ending and without, also below the usual directory."""
    place = tmp_path / "usr" / "lib" / "x86_64-linux-gnu" / "own"
    place.mkdir(parents=True)
    (place / name).touch()
    assert Programs(tmp_path, "own").environment["LD_LIBRARY_PATH"] == str(place)
