"""A certificate and its key, loaded into a TLS context from memory."""

import os
import ssl


def load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a pair: `ssl` takes only paths, but files may change and a key must not reach a disk."""
    descriptor = os.memfd_create("pair")
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(key + b"\n" + certificate)
        # Without a password, OpenSSL would ask for that of an encrypted key on the terminal.
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password="")
    finally:
        os.close(descriptor)
