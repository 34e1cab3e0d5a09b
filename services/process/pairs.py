"""Certificates and keys: files, and pairs that are loaded into a TLS context."""

import os
import ssl
from pathlib import Path
from typing import Final

from services.process.errors import CertificateError
from services.process.files import open_regular

MAX_FILE: Final = 1024 * 1024


def load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a certificate and its key, PEM."""
    # `ssl` takes only paths. But the files may change in between, and a key must not reach a disk.
    descriptor = os.memfd_create("pair")
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(key + b"\n" + certificate)
        # Without a password, OpenSSL would ask for that of an encrypted key on the terminal.
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password="")
    finally:
        os.close(descriptor)


def read_pem(path: Path) -> bytes:
    """Read a file of certificates or a key."""
    try:
        with open_regular(path, follow_links=True) as file:
            content = file.read(MAX_FILE + 1)
    except OSError as error:
        raise CertificateError(f"{path}: {error.strerror}") from error
    if len(content) > MAX_FILE:
        raise CertificateError(f"{path}: more than {MAX_FILE} bytes is not a certificate or key")
    return content
