"""Certificates that hardly a tool makes, as DER written by hand; nobody signed them."""

import base64
from typing import Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

_SEQUENCE: Final = 0x30
_OBJECT: Final = 0x06
_OCTETS: Final = 0x04
UTC_TIME: Final = 0x17
TIME: Final = 0x18

KEY: Final = ec.generate_private_key(ec.SECP256R1())
_KEY_INFO: Final = KEY.public_key().public_bytes(
    serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
)
_ECDSA_SHA256: Final = "2a8648ce3d040302"


def der(tag: int, *contents: bytes) -> bytes:
    """A value of DER, with its tag and length."""
    body = b"".join(contents)
    size = len(body)
    long = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, *([size] if size < 128 else [128 + len(long), *long])]) + body


def object_id(text: str) -> bytes:
    """An object identifier, from its bytes in hexadecimal."""
    return der(_OBJECT, bytes.fromhex(text))


def extension(identifier: str, value: bytes, *, critical: bool = False) -> bytes:
    """An extension of a certificate; its identifier is in hexadecimal."""
    flag = [der(1, b"\xff")] if critical else []
    return der(_SEQUENCE, object_id(identifier), *flag, der(_OCTETS, value))


def name(value: bytes, kind: int = 0x0C) -> bytes:
    """A name of one attribute, the common name."""
    return der(_SEQUENCE, der(0x31, der(_SEQUENCE, object_id("550403"), der(kind, value))))


CA: Final = extension("551d13", der(_SEQUENCE, der(1, b"\xff")), critical=True)
USAGE: Final = extension("551d0f", der(3, b"\x01\x06"), critical=True)
X400: Final = extension("551d11", der(_SEQUENCE, der(0xA3, der(_SEQUENCE))))


def certificate(
    *extensions: bytes,
    version: int = 2,
    serial: bytes = b"\x01",
    subject: bytes = name(b"odd"),
    begins: tuple[int, bytes] = (UTC_TIME, b"200101000000Z"),
    ends: tuple[int, bytes] = (UTC_TIME, b"490101000000Z"),
    key: bytes = _KEY_INFO,
    algorithm: str = _ECDSA_SHA256,
) -> bytes:
    """A certificate as PEM; a `version` of 2 is X.509 version 3."""
    signed_with = der(_SEQUENCE, object_id(algorithm))
    body = der(
        _SEQUENCE,
        der(0xA0, der(2, bytes([version]))) if version else b"",
        der(2, serial),
        signed_with,
        subject,
        der(_SEQUENCE, der(*begins), der(*ends)),
        subject,
        key,
        der(0xA3, der(_SEQUENCE, *extensions)) if extensions else b"",
    )
    return pem(der(_SEQUENCE, body, signed_with, der(3, b"\x00\x30\x06\x02\x01\x01\x02\x01\x01")))


def pem(content: bytes) -> bytes:
    """DER as the PEM of a certificate."""
    text = base64.encodebytes(content)
    return b"-----BEGIN CERTIFICATE-----\n" + text + b"-----END CERTIFICATE-----\n"


UNKNOWN_KEY: Final = der(_SEQUENCE, der(_SEQUENCE, object_id("2a0304")), der(3, b"\x00\x01"))

ODD: Final = {
    "version 1": certificate(version=0),
    "version 2": certificate(CA, USAGE, version=1),
    "version 9": certificate(CA, USAGE, version=8),
    "an extension twice": certificate(CA, CA, USAGE),
    "an X.400 name": certificate(CA, USAGE, X400),
    "year 0": certificate(CA, USAGE, begins=(TIME, b"00000101000000Z")),
    "year 9999": certificate(CA, USAGE, ends=(TIME, b"99991231235959Z")),
    "begins in 9999": certificate(
        CA, USAGE, begins=(TIME, b"99991231235930Z"), ends=(TIME, b"99991231235959Z")
    ),
    "ends before it begins": certificate(CA, USAGE, ends=(UTC_TIME, b"100101000000Z")),
    "no such day": certificate(CA, USAGE, ends=(UTC_TIME, b"490231000000Z")),
    "a negative serial": certificate(CA, USAGE, serial=b"\x80"),
    "a long serial": certificate(CA, USAGE, serial=b"\x01" * 80),
    "an unknown key": certificate(CA, USAGE, key=UNKNOWN_KEY),
    "an unknown signature": certificate(CA, USAGE, algorithm="2a0304"),
    "an empty subject": certificate(CA, USAGE, subject=der(_SEQUENCE)),
    "a subject that is no UTF-8": certificate(CA, USAGE, subject=name(b"\xff\xfe")),
    "a subject of bits": certificate(CA, USAGE, subject=name(b"\x00\x01", 3)),
    "an extension that can't be read": certificate(CA, extension("551d0f", b"\x00")),
    "a DNS name that is not ASCII": certificate(
        CA, USAGE, extension("551d11", der(_SEQUENCE, der(0x82, b"\xe9.svc")))
    ),
    "an address of three bytes": certificate(
        CA, USAGE, extension("551d11", der(_SEQUENCE, der(0x87, b"\x01\x02\x03")))
    ),
    "an unknown critical extension": certificate(
        CA, USAGE, extension("2a0304", b"\x05\x00", critical=True)
    ),
}
"""Certificates as PEM."""
