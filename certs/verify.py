"""Whether certificates hold together, as the API server would find them: one check a line.

Pure but for `served_by`, which speaks TLS to a webhook.
"""

import socket
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from cryptography import x509

from certs.contents import Contents
from certs.reading import (
    UnusableKey,
    bundle_pem,
    certificates_in,
    fingerprint,
    is_authority,
    is_valid,
    key_in,
    lacking_names,
    names_of,
    serves,
    signer_of,
    subject_text,
)
from certs.serving import KEY, key_problem
from certs.trust import KEY as CA_KEY
from services.process.errors import CertificateError, InvalidSettings
from services.process.text import plain

HANDSHAKE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: What it is about: `ca`, `key`, `chain`, `names`, `expiry`, `bundle`, `served`.
        good: Whether it is as it should be.
        said: What was found.
        remedy: What to do about it, where it isn't good.
    """

    name: str
    good: bool
    said: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Served:
    """What a webhook shows.

    Attributes:
        certificate: Its certificate; None where there was no handshake.
        problem: Why a client that trusts the bundle refuses it; empty if it doesn't.
    """

    certificate: x509.Certificate | None
    problem: str = ""


RENEW = "accelbind certs renew (of a folder: accelbind certs issue) makes a new one"


def check(
    contents: Contents,
    names: Sequence[x509.GeneralName],
    now: datetime,
    within: timedelta,
) -> Iterator[Check]:
    """Checks what a folder or a cluster holds.

    Args:
        contents: What it holds.
        names: What the serving certificate has to be for; any name at all if there is none here.
        now: The present.
        within: A certificate that ends so soon is not good.
    """
    yield from _authorities(contents, now, within)
    if not contents.chain:
        said = f"{contents.serving_at} has no serving certificate that can be read"
        yield Check("chain", good=False, said=said, remedy=RENEW)
    else:
        yield from _serving(contents, names, now, within)
    yield from _bundles(contents)


def served_by(url: str, server_name: str, authorities: Sequence[x509.Certificate]) -> Served:
    """Asks a webhook for its certificate, as an API server does.

    Args:
        url: `https://HOST[:PORT]`.
        server_name: What it is to be called, such as `accelbind-webhook.accelbind-system.svc`.
        authorities: Whom to trust.

    Raises:
        InvalidSettings: The URL isn't one of a TLS server.
    """
    host, port = _address(url)
    if not authorities:
        return Served(None, f"{url} wasn't asked: there is no CA to trust")
    try:
        shown = _shown(host, port, server_name)
    except OSError as error:  # ssl.SSLError and TimeoutError are some
        return Served(None, f"no TLS with {url}: {_reason(error)}")
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as Go: any CA in the bundle will do
    try:
        trusting.load_verify_locations(cadata=bundle_pem(authorities).decode())
        with (
            socket.create_connection((host, port), HANDSHAKE_SECONDS) as plain_socket,
            trusting.wrap_socket(plain_socket, server_hostname=server_name),
        ):
            return Served(shown)
    except OSError as error:
        return Served(shown, f"{url} is refused as {server_name}: {_reason(error)}")


def check_served(served: Served, contents: Contents) -> Check:
    """Whether a webhook shows what the API server trusts, and what is kept here."""
    remedy = (
        "if it has just changed, wait two minutes for the mounted Secret; else look at the"
        " webhook's log for 'new certificate not used'"
    )
    if served.problem or served.certificate is None:
        return Check("served", good=False, said=served.problem, remedy=remedy)
    if contents.chain and served.certificate != contents.chain[0]:
        said = (
            f"the webhook shows {fingerprint(served.certificate)[:23]}…, trusted, but not what is"
            f" in {contents.serving_at} ({fingerprint(contents.chain[0])[:23]}…)"
        )
        return Check("served", good=False, said=said, remedy=remedy)
    return Check("served", good=True, said="the webhook shows it, and clients accept it")


def _authorities(contents: Contents, now: datetime, within: timedelta) -> Iterator[Check]:
    remedy = "accelbind certs run, or renew --ca, makes a new one (of a folder: move it away)"
    if not contents.authorities:
        said = f"{contents.authority_at} has no CA that can be read"
        yield Check("ca", good=False, said=said, remedy=remedy)
        return
    for number, one in enumerate(contents.authorities):
        what = f"{'old ' if number else ''}CA {subject_text(one.subject)}"
        if not is_authority(one):
            yield Check("ca", good=False, said=f"{what} is no CA's certificate", remedy=remedy)
        elif not number or not is_valid(one, now):
            yield _expiry(what, one, now, within if not number else timedelta(0), remedy)
    if text := contents.authority.get(CA_KEY, b""):
        yield _authority_key(contents.authorities[0], text, remedy)


def _authority_key(certificate: x509.Certificate, text: bytes, remedy: str) -> Check:
    try:
        key = key_in(text)
    except UnusableKey as error:
        remedy = "put in an unencrypted elliptic curve key and its certificate, or take both out"
        return Check("key", good=False, said=f"the CA's key can't sign: {error}", remedy=remedy)
    if key is None or key.public_key() != certificate.public_key():
        said = "the CA's key is garbled or another one's"
        return Check("key", good=False, said=said, remedy=remedy)
    return Check("key", good=True, said="the CA's key belongs to its certificate")


def _serving(
    contents: Contents,
    names: Sequence[x509.GeneralName],
    now: datetime,
    within: timedelta,
) -> Iterator[Check]:
    certificate = contents.chain[0]
    problem = key_problem(certificate, contents.serving.get(KEY, b""))
    yield Check("key", not problem, problem or "serving certificate and key are a pair", RENEW)
    signer = signer_of(contents.chain, contents.authorities)
    if signer is None:
        said = f"the serving certificate is of {subject_text(certificate.issuer)}, none of the CAs"
        yield Check("chain", good=False, said=said, remedy=RENEW)
    elif not serves(certificate):
        said = "the serving certificate may not be a server's (extendedKeyUsage)"
        yield Check("chain", good=False, said=said, remedy=RENEW)
    else:
        said = f"the serving certificate is of {subject_text(signer.subject)}"
        yield Check("chain", good=True, said=said)
    lacking = lacking_names(certificate, names)
    held = ", ".join(str(name.value) for name in names_of(certificate)) or "no name"
    said = f"the serving certificate is for {held}" + (
        f", not {', '.join(lacking)}" if lacking else ""
    )
    yield Check("names", not lacking and bool(names_of(certificate)), said, RENEW)
    yield _expiry("the serving certificate", certificate, now, within, RENEW)


def _bundles(contents: Contents) -> Iterator[Check]:
    remedy = "accelbind certs inject puts the bundle in"
    for name in contents.missing:
        said = f"{name} is not there"
        yield Check("bundle", good=False, said=said, remedy="apply the manifests")
    for name, bundle in contents.bundles.items():
        held = set(certificates_in(bundle).all)
        wanted = set(contents.authorities)
        if not held:
            yield Check("bundle", good=False, said=f"{name} has no bundle", remedy=remedy)
        elif held != wanted:
            said = f"{name} trusts other CAs than {contents.authority_at}"
            yield Check("bundle", good=False, said=said, remedy=remedy)
        else:
            yield Check("bundle", good=True, said=f"{name} has the bundle")


def _expiry(
    what: str, certificate: x509.Certificate, now: datetime, within: timedelta, remedy: str
) -> Check:
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now < begins:
        said = f"{what} counts from {begins:%F %T} only: is a clock wrong?"
        return Check("expiry", good=False, said=said, remedy=remedy)
    if now >= ends:
        return Check("expiry", good=False, said=f"{what} ended on {ends:%F %T}", remedy=remedy)
    return Check("expiry", ends - now > within, f"{what} ends on {ends:%F %T}", remedy)


def _address(url: str) -> tuple[str, int]:
    try:
        split = urlsplit(url if "//" in url else f"https://{url}")
        host, port = split.hostname or "", split.port or 443
    except ValueError as error:
        raise InvalidSettings(f"--url {url!r:.100}: {error}") from error
    if split.scheme != "https" or not host:
        raise InvalidSettings(f"--url {url!r:.100} is no https://HOST[:PORT]")
    return host, port


def _shown(host: str, port: int, server_name: str) -> x509.Certificate:
    """The certificate that is shown to whoever asks, trusted or not."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # what is wrong with it is to be found out
    context.verify_mode = ssl.CERT_NONE
    with (
        socket.create_connection((host, port), HANDSHAKE_SECONDS) as plain_socket,
        context.wrap_socket(plain_socket, server_hostname=server_name) as secured,
    ):
        der = secured.getpeercert(binary_form=True)
    try:
        return x509.load_der_x509_certificate(der or b"")
    except ValueError as error:
        raise CertificateError(f"{host}:{port} shows no certificate: {error}") from error


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return plain(error.verify_message, 200)
    return plain(error.strerror or str(error) or type(error).__name__, 200)
