"""Certificates of a test: an authority, what it signed, and another authority."""

from __future__ import annotations

import subprocess
from pathlib import Path

PASSWORD = "a-password-of-this-test"
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Certificates:
    """
    Files in PEM form, and key stores in PKCS12 form for brokers in Java.

    ``ca.pem`` has signed ``server.pem`` and ``client.pem``; ``other-ca.pem`` has signed ``stranger.pem``. Each key has
    the name of its certificate, with ``.key``. ``server.p12`` and ``trust.p12`` have `PASSWORD`.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for authority in ("ca", "other-ca"):
            self._run("openssl", "req", "-x509", *_KEY, "-keyout", f"{authority}.key", "-out", f"{authority}.pem",
                      "-days", "3650", "-subj", f"/CN={authority}")  # fmt: skip
        for name, authority in (("server", "ca"), ("client", "ca"), ("stranger", "other-ca")):
            self._issue(name, authority)
        self._run("openssl", "pkcs12", "-export", "-in", "server.pem", "-inkey", "server.key", "-out", "server.p12",
                  "-passout", f"pass:{PASSWORD}")  # fmt: skip
        self._run("keytool", "-importcert", "-noprompt", "-file", "ca.pem", "-alias", "ca", "-storetype", "PKCS12",
                  "-keystore", "trust.p12", "-storepass", PASSWORD)  # fmt: skip
        for file in directory.iterdir():
            file.chmod(0o644)  # servers run as another user

    def __getitem__(self, name: str) -> str:
        """The path of a file."""
        return str(self.directory / name)

    def _issue(self, name: str, authority: str) -> None:
        self._run("openssl", "req", *_KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (self.directory / f"{name}.ext").write_text("subjectAltName=IP:127.0.0.1\n")
        self._run("openssl", "x509", "-req", "-CA", f"{authority}.pem", "-CAkey", f"{authority}.key",
                  "-CAcreateserial", "-days", "3650", "-in", f"{name}.csr", "-extfile", f"{name}.ext",
                  "-out", f"{name}.pem")  # fmt: skip

    def _run(self, *command: str) -> None:
        subprocess.run(command, cwd=self.directory, check=True, capture_output=True)
