"""Certificates for servers that speak TLS, made anew for each."""

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from .common import ServerError, ServerMissing

NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
DAYS = ("-days", "30")


class Certificates(NamedTuple):
    """Files in PEM. `other_ca` is an authority that did not sign the server's certificate."""

    ca: Path
    other_ca: Path
    certificate: Path
    key: Path


def make_certificates(folder, names="DNS:localhost,IP:127.0.0.1"):
    """An authority, a server's certificate for `names` signed by it, and a second authority that signed nothing.

    With `DNS:localhost` alone, 127.0.0.1 leads to the same server by a name that its certificate does not have."""
    if not shutil.which("openssl"):
        raise ServerMissing("openssl is not installed")

    def openssl(*arguments):
        done = subprocess.run(["openssl", *arguments], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            raise ServerError(f"openssl {' '.join(arguments)} failed:\n{done.stderr}")

    for name, subject in (("ca", "postrider test CA"), ("other-ca", "another test CA")):
        openssl("req", "-x509", *NEW_KEY, *DAYS, "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={subject}")
    openssl("req", *NEW_KEY, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=localhost")
    (folder / "server.ext").write_text(f"subjectAltName={names}\n")
    openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
            *DAYS, "-extfile", "server.ext", "-out", "server.crt")
    return Certificates(folder / "ca.pem", folder / "other-ca.pem", folder / "server.crt", folder / "server.key")
