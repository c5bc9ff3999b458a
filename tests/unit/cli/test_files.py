"""Files that commands read, and cannot."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cues_kafka import ConfigError
from cues_kafka.cli.config import FILE, load
from cues_kafka.cli.loading import load_graph
from cues_kafka.cli.main import app


def test_options_of_a_store_are_an_object() -> None:
    done = CliRunner().invoke(app, ["files", "file:///nowhere", "--options", "[1]"])

    assert done.exit_code == 2
    assert "--options [1]: takes an object in JSON" in " ".join(done.output.split())


@pytest.mark.parametrize("name", [FILE, "shop.toml"])
def test_file_that_may_not_be_read_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a traceback."""
    (tmp_path / name).write_text("")

    def refused(self: Path, encoding: str | None = None) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refused)
    with pytest.raises(ConfigError, match=rf"{name} cannot be read: Permission denied"):
        load(env={}, cwd=tmp_path) if name == FILE else load_graph(str(tmp_path / name))
