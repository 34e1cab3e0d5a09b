"""Secrets and bundles of a cluster, in normal operation and after damage."""

import asyncio
import ipaddress
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from certs import state
from certs.authority import (
    KeyPair,
    create_authority,
    issue_serving,
    utc_now,
)
from certs.certificates import bundle_pem, read_certificates
from certs.keeper import ATTEMPTS, renew
from services.process.errors import CertificateError, ClusterError
from tests.certs.memory import (
    CA,
    HOSTS,
    NAMESPACE,
    SERVICE,
    SETTINGS,
    TLS,
    Cluster,
    encrypted_key,
    rebuilt,
)
from tests.odd_certificates import ODD

pytestmark = pytest.mark.anyio

MUTATING = "mutatingwebhookconfigurations/accelbind"
LOST = ("ca.key", "tls.key")
"""What `certs renew --ca` replaces."""
NOT_PEM = b"-----BEGIN CERTIFICATE-----\nxxxx\n-----END CERTIFICATE-----\n"


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
async def filled(cluster: Cluster) -> Cluster:
    """A cluster after the first round."""
    await cluster.replica().run_once()
    return cluster


async def test_empty_secrets_are_filled_and_the_bundle_is_written(cluster: Cluster) -> None:
    cluster.store.edit(CA, note=b"of the operator")
    report = await cluster.replica().run_once()
    assert (report.problems, report.waiting, report.missing) == ((), False, ())
    [ca] = cluster.bundle
    assert report.authorities == (ca,)
    assert report.serving == cluster.serving
    assert cluster.serving.is_signed_by(ca)
    assert cluster.secret(TLS)["ca.crt"] == ca.pem == cluster.secret(CA)["ca.crt"]
    assert set(cluster.secret(CA)) == {"ca.crt", "ca.key", "note"}


async def test_a_certificate_is_renewed_after_two_thirds_of_its_life(filled: Cluster) -> None:
    first, before = filled.serving, len(filled.store.writes)
    await filled.replica().run_once(days=59)
    assert filled.serving == first
    assert len(filled.store.writes) == before
    await filled.replica().run_once(days=2)
    assert filled.serving != first
    assert len(filled.bundle) == 1


async def test_a_due_ca_is_replaced_in_steps(cluster: Cluster) -> None:
    """New bundle; once settled, a certificate of the new CA; once that is old, no old CA."""
    replicas = [cluster.replica(), cluster.replica()]
    await replicas[0].run_once()
    [old], clock = cluster.bundle, cluster.clock
    for days in (2404, 30):
        clock.advance(days=days)
        for each in replicas:
            await each.run_once()
    new, kept = cluster.bundle
    assert kept == old
    assert cluster.serving.is_signed_by(old)
    await replicas[1].run_once()
    clock.advance(seconds=61)
    await replicas[1].run_once()
    assert cluster.serving.is_signed_by(new)
    assert cluster.secret(TLS)["ca.crt"] == bundle_pem([new, old])
    clock.advance(hours=24)
    await replicas[0].run_once()
    assert cluster.bundle == [new, old], "the certificate is not older than the overlap"
    clock.advance(seconds=1)
    await replicas[0].run_once()
    assert cluster.bundle == [new]
    await replicas[0].run_once(days=59)
    assert cluster.bundle == [new]
    assert set(cluster.secret(CA)) == {"ca.crt", "ca.key"}


@pytest.mark.parametrize("what", ["restart", "wiped bundle"])
async def test_the_time_to_settle_starts_again(filled: Cluster, what: str) -> None:
    replica = filled.replica(*LOST)
    for _ in range(2):
        await replica.run_once()
    filled.clock.advance(seconds=61)
    if what == "restart":
        replica = filled.replica()
    else:
        filled.store.put(MUTATING, b"")
    assert (await replica.run_once()).waiting
    assert len(filled.bundle) == 2
    assert (await replica.run_once()).waiting
    assert not (await replica.run_once(seconds=61)).waiting


async def test_the_served_ca_stays_however_often_the_ca_is_replaced(
    filled: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "MOST_CERTIFICATES", 4)
    [first], shown = filled.bundle, filled.serving
    for _ in range(6):
        assert (await filled.replica(*LOST).run_once()).waiting
        assert first in filled.bundle
        assert filled.serving == shown
    assert len(filled.bundle) == 4
    filled.edit_bundles(b"")
    await filled.replica().run_once()
    assert first in filled.bundle, "the CA's Secret holds the bundle too"


async def test_a_bundle_that_cannot_be_written_delays_the_new_ca_only(filled: Cluster) -> None:
    [old] = filled.bundle
    replica = filled.replica(*LOST)
    with filled.store.refusing(reads=False):
        reports = [await replica.run_once(hours=5) for _ in range(4)]
    assert len(reports[-1].problems) == 2
    assert "RBAC" in reports[-1].problems[0]
    assert filled.serving.is_signed_by(old)
    for _ in range(3):
        filled.clock.advance(minutes=2)
        assert (await replica.run_once()).problems == ()
    assert filled.serving.is_signed_by(filled.bundle[0])


@pytest.mark.parametrize(
    ("changes", "new_key"),
    [
        ({"ca_key": None}, True),
        ({"ca_crt": NOT_PEM}, False),
        ({"ca_crt": b"\xff", "ca_key": b"\xff", "old_crt": b"\xff"}, True),
    ],
)
async def test_a_damaged_ca_is_repaired_while_what_serves_stays_trusted(
    filled: Cluster, changes: dict[str, bytes | None], new_key: bool
) -> None:
    [old], shown, replica = filled.bundle, filled.serving, filled.replica()
    filled.store.edit(CA, **changes)
    await replica.run_once()
    assert filled.serving == shown
    assert (filled.bundle[0].public_key != old.public_key) is new_key
    for _ in range(3):
        assert any(filled.serving.is_signed_by(one) for one in filled.bundle)
        await replica.run_once(minutes=45)
    assert filled.serving.is_signed_by(filled.bundle[0])
    await replica.run_once(hours=25)
    assert len(filled.bundle) == 1


async def test_a_ca_that_was_put_in_by_hand_is_adopted_in_steps(filled: Cluster) -> None:
    [old], shown, replica = filled.bundle, filled.serving, filled.replica()
    mine = create_authority(filled.clock.now(), timedelta(days=1000))
    filled.edit_authority(mine)
    for _ in range(2):
        await replica.run_once()
        assert filled.bundle == [mine.certificate, old]
        assert filled.serving == shown
    await replica.run_once(minutes=2)
    assert filled.serving.is_signed_by(mine.certificate)


async def test_certificates_made_by_other_means_are_replaced_in_steps(cluster: Cluster) -> None:
    """Whoever ran `certs issue` and pasted the bundle loses no handshake."""
    theirs = create_authority(cluster.clock.now(), timedelta(days=1000))
    pair = issue_serving(theirs, HOSTS, cluster.clock.now(), timedelta(days=100))
    cluster.edit_pair(pair)
    cluster.edit_bundles(theirs.certificate.pem)
    replica = cluster.replica()
    for _ in range(2):
        await replica.run_once()
        assert cluster.serving == pair.certificate
        assert cluster.bundle[1] == theirs.certificate
    await replica.run_once(minutes=2)
    assert cluster.serving.is_signed_by(cluster.bundle[0])
    assert theirs.certificate in cluster.bundle


async def test_other_certificates_of_a_configuration_leave_with_the_old_cas(
    filled: Cluster,
) -> None:
    [own] = filled.bundle
    stranger = create_authority(filled.clock.now(), timedelta(days=9)).certificate
    ended = create_authority(filled.clock.now() - timedelta(days=9), timedelta(days=1)).certificate
    filled.store.put(MUTATING, bundle_pem((stranger, ended, filled.serving)))
    await filled.replica().run_once()
    assert filled.bundle == [own, stranger, filled.serving], "whatever is valid may be trusted"
    await filled.replica().run_once(hours=25)
    assert filled.bundle == [own]


@pytest.mark.parametrize(
    "damage",
    ["no key", "garbled", "another key", "unknown CA", "for clients", "expired", "refused"],
)
async def test_a_serving_pair_that_nobody_can_use_is_replaced_at_once(
    filled: Cluster, damage: str
) -> None:
    shown = filled.serving
    stranger = create_authority(filled.clock.now(), timedelta(days=1000))
    pair = issue_serving(stranger, HOSTS, filled.clock.now(), timedelta(days=100))
    match damage:
        case "no key":
            filled.store.edit(TLS, tls_key=b"")
        case "garbled":
            filled.store.edit(TLS, tls_crt=b"-----BEGIN CERTIFICATE-----\nhalf")
        case "another key":
            filled.store.edit(TLS, tls_key=pair.key_pem)
        case "unknown CA":
            filled.edit_pair(pair)
        case "for clients":
            pair = filled.pair_for(ExtendedKeyUsageOID.CLIENT_AUTH)
            filled.edit_pair(pair)
        case "expired":
            filled.clock.advance(days=91)
        case "refused":
            pair = filled.pair_with(UNKNOWN, critical=True)
            filled.edit_pair(pair)
    await filled.replica().run_once()
    assert filled.serving not in (shown, pair.certificate)
    assert filled.serving.is_signed_by(filled.bundle[0])
    key = serialization.load_pem_private_key(filled.secret(TLS)["tls.key"], password=None)
    assert key.public_key() == filled.serving.public_key


NOW, DAY = utc_now(), timedelta(days=1)
BY_HAND = create_authority(NOW, 1000 * DAY)


def with_extension(value: x509.ExtensionType, *, critical: bool = True) -> KeyPair:
    """A CA made by hand that has one more extension."""
    return rebuilt(BY_HAND, without=type(value), adding=value, critical=critical)


SVC, SYSTEM, OTHER = map(x509.DNSName, ("svc", NAMESPACE, "example.com"))
BELOW_SVC = x509.DNSName(".svc")
NETWORK = x509.IPAddress(ipaddress.ip_network("10.0.0.0/8"))
ONE_POLICY = x509.PolicyInformation(x509.ObjectIdentifier("1.2.3"), None)
UNKNOWN = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\x05\x00")
UNFIT: dict[str, KeyPair | None] = {
    "its names are excluded": with_extension(x509.NameConstraints(None, [SVC])),
    "other names are permitted": with_extension(x509.NameConstraints([OTHER], None)),
    "for clients only": with_extension(
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
    ),
    "names below svc are excluded": with_extension(x509.NameConstraints(None, [BELOW_SVC])),
    "names below svc are permitted": with_extension(
        x509.NameConstraints([BELOW_SVC, SYSTEM, x509.DNSName(SERVICE)], None)
    ),
    "an unknown critical extension": with_extension(UNKNOWN),
    "no basicConstraints": rebuilt(BY_HAND, without=x509.BasicConstraints),
    "secp256k1": create_authority(NOW, 9 * DAY, ec.generate_private_key(ec.SECP256K1())),
    "brainpool": create_authority(NOW, 9 * DAY, ec.generate_private_key(ec.BrainpoolP256R1())),
    "not a CA's": issue_serving(BY_HAND, HOSTS, NOW),
    "encrypted": None,
}


@pytest.mark.parametrize("kind", UNFIT)
async def test_a_ca_that_api_servers_refuse_is_not_adopted(filled: Cluster, kind: str) -> None:
    if unfit := UNFIT[kind]:
        filled.edit_authority(unfit)
    else:
        filled.store.edit(CA, ca_key=encrypted_key())
    secret, pair, bundle = filled.secret(CA), filled.secret(TLS), filled.bundle
    before, replica = len(filled.store.writes), filled.replica()
    for _ in range(2):
        with pytest.raises(CertificateError, match=r"accelbind-ca: .* remove ca\.key and ca\.crt"):
            await replica.run_once(minutes=2)
    assert len(filled.store.writes) == before
    assert (filled.secret(CA), filled.secret(TLS), filled.bundle) == (secret, pair, bundle)
    filled.store.edit(CA, ca_crt=None, ca_key=None)
    assert (await replica.run_once()).problems == ()


@pytest.mark.parametrize(
    "authority",
    [
        create_authority(NOW, 1000 * DAY, ec.generate_private_key(ec.SECP384R1())),
        create_authority(NOW, 1000 * DAY, ec.generate_private_key(ec.SECP521R1())),
        rebuilt(BY_HAND, without=x509.SubjectKeyIdentifier),
        with_extension(x509.BasicConstraints(ca=True, path_length=None), critical=False),
        rebuilt(BY_HAND, without=x509.KeyUsage),
        with_extension(x509.NameConstraints([SVC, SYSTEM, x509.DNSName(SERVICE)], [NETWORK])),
        with_extension(x509.CertificatePolicies([ONE_POLICY]), critical=False),
    ],
    ids=[
        *("P-384", "P-521", "no key identifier", "not critical", "no key usage"),
        *("permits the names", "policy"),
    ],
)
async def test_a_usual_ca_of_other_tools_is_adopted(filled: Cluster, authority: KeyPair) -> None:
    parent = create_authority(NOW, 1000 * DAY)
    chain = parent.certificate.pem + authority.certificate.pem
    filled.store.edit(CA, ca_crt=chain, ca_key=authority.key_pem)
    replica = filled.replica()
    for _ in range(3):
        await replica.run_once(minutes=2)
    assert filled.serving.is_signed_by(authority.certificate)


def put_in_use(cluster: Cluster, authority: KeyPair, *names: str) -> None:
    """Let an earlier version have adopted a CA and issued a certificate."""
    cluster.edit_authority(authority)
    cluster.edit_pair(issue_serving(authority, names, cluster.clock.now()))
    cluster.edit_bundles(authority.certificate.pem)


async def test_a_doubtful_ca_that_is_in_use_keeps_signing(cluster: Cluster) -> None:
    authority = with_extension(UNKNOWN)
    put_in_use(cluster, authority, *HOSTS)
    shown, replica = cluster.serving, cluster.replica()
    for days in (0, 61):
        assert cluster.serving == shown
        report = await replica.run_once(days=days)
        assert any("it keeps signing" in warning for warning in report.warnings)
    assert cluster.serving != shown
    assert cluster.serving.is_signed_by(authority.certificate)
    cluster.edit_bundles(b"")
    with pytest.raises(CertificateError, match="API servers"):
        await replica.run_once()


async def test_a_ca_in_use_does_not_sign_names_that_it_may_not(cluster: Cluster) -> None:
    put_in_use(cluster, with_extension(x509.NameConstraints([OTHER], None)), "example.com")
    shown = cluster.serving
    with pytest.raises(CertificateError, match="no permitted name"):
        await cluster.replica().run_once(days=61)
    assert cluster.serving == shown


async def test_odd_certificates_beside_good_ones_stop_no_round(filled: Cluster) -> None:
    [own], odd, replica = filled.bundle, b"".join(ODD.values()), filled.replica()
    for name, key in ((CA, "ca.crt"), (CA, "old.crt"), (TLS, "tls.crt")):
        text = filled.secret(name).get(key, b"")
        filled.store.put(name, filled.secret(name) | {key: text + odd})
    filled.edit_bundles(odd + own.pem)
    reports = [await replica.run_once(minutes=2) for _ in range(3)]
    assert [report.problems for report in reports] == [()] * 3
    unusable = len(ODD) - len(read_certificates(odd))
    assert len(set(reports[0].warnings)) == 5 * unusable, "each in each place"
    assert own in filled.bundle
    for _ in range(4):
        await replica.run_once(days=30)
    assert not filled.serving.validity_error(filled.clock.now())
    assert filled.serving.is_signed_by(filled.bundle[0])


async def test_configurations_that_do_not_exist_are_reported(cluster: Cluster) -> None:
    stored = cluster.store.objects.pop(MUTATING)
    replica = cluster.replica()
    report = await replica.run_once()
    assert (report.missing, report.problems) == ((MUTATING,), ())
    cluster.store.objects[MUTATING] = stored
    assert (await replica.run_once()).missing == ()
    assert len(cluster.bundle) == 1


@pytest.mark.parametrize("minutes", [-6, 6])
async def test_nothing_is_issued_while_the_clocks_differ(cluster: Cluster, minutes: int) -> None:
    replica, side = cluster.replica(), "behind" if minutes > 0 else "ahead of"
    refused = f"0:06:00 {side} the API server's"
    cluster.store.offset = timedelta(minutes=minutes)
    with pytest.raises(ClusterError, match=refused):
        await replica.run_once()
    assert cluster.store.writes == []
    cluster.store.offset = timedelta(minutes=4)
    assert (await replica.run_once()).problems == ()
    shown = cluster.serving
    cluster.store.offset = timedelta(minutes=minutes)
    cluster.clock.advance(days=61)
    with pytest.raises(ClusterError, match=refused):
        await replica.run_once()
    assert cluster.serving == shown


async def test_clocks_that_went_back_leave_nothing_from_the_future(cluster: Cluster) -> None:
    await cluster.replica().run_once(days=30)
    [future] = cluster.bundle
    await cluster.replica().run_once(days=-30)
    assert cluster.bundle != [future]
    now = cluster.clock.now()
    for certificate in (cluster.serving, *cluster.bundle):
        assert certificate.begins <= now < certificate.ends


async def test_the_serving_certificate_stays_while_configurations_cannot_be_read(
    filled: Cluster,
) -> None:
    """Whether its CA is trusted is unknown then, and a new one could not be announced."""
    shown, replica = filled.serving, filled.replica()
    filled.store.edit(CA, ca_crt=None, ca_key=None)
    with filled.store.refusing(reads=True):
        reports = [await replica.run_once(minutes=5) for _ in range(2)]
    assert [len(each.problems) for each in reports] == [2, 2]
    for _ in range(2):
        assert filled.serving == shown
        await replica.run_once()
    assert any(shown.is_signed_by(one) for one in filled.bundle)
    await replica.run_once(minutes=2)
    assert filled.serving.is_signed_by(filled.bundle[0])


async def test_a_certificate_that_lacks_a_name_is_renewed_at_once(filled: Cluster) -> None:
    filled.change_settings(name=("other.svc",))
    await filled.replica().run_once()
    assert filled.serving.names == (*HOSTS, "other.svc")
    longer = filled.serving
    filled.change_settings(name=())
    await filled.replica().run_once()
    assert filled.serving == longer, "replicas of two versions would undo each other's work"


async def test_a_lost_answer_does_no_harm(filled: Cluster) -> None:
    """The write succeeded, and the writer does not know."""
    filled.clock.advance(days=61)
    filled.store.lose_answers = True
    with pytest.raises(ClusterError, match="504"):
        await filled.replica().run_once()
    filled.store.lose_answers = False
    written = filled.serving
    await filled.replica().run_once()
    assert filled.serving == written


async def test_endless_conflicts_fail_the_round(cluster: Cluster) -> None:
    async def conflict(_: str) -> int:
        return 409

    cluster.store.on_write = conflict
    with pytest.raises(ClusterError, match=f"{ATTEMPTS} writes in a row conflicted"):
        await cluster.replica().run_once()


async def test_a_delayed_replica_undoes_nothing(filled: Cluster) -> None:
    """It read an empty bundle and the CA of that time, and writes when another CA serves."""
    [old] = filled.bundle
    filled.edit_bundles(b"")
    held, free = asyncio.Event(), asyncio.Event()

    async def hold_the_first(_: str) -> None:
        if not held.is_set():
            held.set()
            await free.wait()

    filled.store.on_write = hold_the_first
    late = asyncio.ensure_future(filled.replica().run_once())
    await asyncio.wait_for(held.wait(), 60)
    other = filled.replica(*LOST)
    for _ in range(3):
        await other.run_once()
        filled.clock.advance(minutes=1)
    new = filled.bundle
    assert new[0] != old
    assert filled.serving.is_signed_by(new[0])
    free.set()
    await asyncio.wait_for(late, 60)
    assert filled.store.conflicts == 1
    assert filled.bundle == new


async def test_renewing_by_command_keeps_names_and_other_cas(cluster: Cluster) -> None:
    cluster.change_settings(name=("other.svc",))
    cluster.clock.advance(days=-2)
    await cluster.replica().run_once()
    other = create_authority(utc_now(), timedelta(days=9)).certificate
    shown = cluster.serving
    cluster.edit_bundles(other.pem)  # as the chart does, for a Secret of its user
    cluster.clock.time = utc_now()
    await renew(cluster.store, SETTINGS, authority=False)
    assert cluster.serving != shown
    assert cluster.serving.names == (*HOSTS, "other.svc")
    for hours in (0, 24, 1):
        assert cluster.bundle[1:] == [other], "webhooks may serve what it has signed"
        await cluster.replica().run_once(hours=hours)
    assert len(cluster.bundle) == 1


async def test_renewing_by_command_fails_where_the_bundle_cannot_be_written(
    filled: Cluster,
) -> None:
    with filled.store.refusing(reads=False), pytest.raises(ClusterError, match="cannot be written"):
        await renew(filled.store, SETTINGS, authority=True)
    assert len(filled.bundle) == 1


@pytest.mark.parametrize("deleted", [[CA], [TLS], [CA, TLS]], ids=" ".join)
@pytest.mark.parametrize("changing", [False, True], ids=["steady", "while the CA changes"])
async def test_api_servers_trust_what_is_issued_for_a_deleted_secret(
    filled: Cluster, deleted: list[str], *, changing: bool
) -> None:
    """They may know the bundle of a minute ago, and webhooks still serve what was there before."""
    replica = filled.replica(*(LOST if changing else ()))
    await replica.run_once()
    served, [*known] = filled.serving, filled.bundle
    for name in deleted:
        filled.store.put(name, {})
    for _ in range(3):
        await replica.run_once(seconds=10)
        assert any(served.is_signed_by(one) for one in filled.bundle)
        if filled.secret(TLS):
            assert any(filled.serving.is_signed_by(one) for one in known)
    for _ in range(2):
        await replica.run_once(minutes=2)
    assert filled.serving.is_signed_by(filled.bundle[0])
    assert any(served.is_signed_by(one) for one in filled.bundle)
    await replica.run_once(hours=25)
    assert len(filled.bundle) == 1


async def test_a_key_without_its_certificate_is_kept(filled: Cluster) -> None:
    """It may be somebody's only copy."""
    other = create_authority(NOW, 9 * DAY)
    filled.store.edit(CA, ca_key=other.key_pem)
    await filled.replica().run_once()
    assert filled.secret(CA)["ca.key"] == other.key_pem
    assert filled.bundle[0].public_key == other.certificate.public_key
