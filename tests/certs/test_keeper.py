"""Secrets and bundles of a cluster, in normal operation and after damage."""

import asyncio
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives import serialization
from structlog.testing import capture_logs

from certs import state
from certs.authority import create_authority, issue_serving, utc_now
from certs.certificates import bundle_pem
from certs.keeper import ATTEMPTS, renew
from services.process.errors import CertificateError, ClusterError
from tests.certs.memory import CA, HOSTS, SETTINGS, TLS, Cluster, encrypted_key, rebuilt
from tests.odd_certificates import ODD

MUTATING = "mutatingwebhookconfigurations/accelbind"
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
    assert (report.problems, report.waiting) == ((), False)
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
    replica = filled.replica()
    filled.replace_ca()
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
        filled.replace_ca()
        assert (await filled.replica().run_once()).waiting
        assert first in filled.bundle
        assert filled.serving == shown
    assert len(filled.bundle) == 4
    filled.edit_bundles(b"")
    await filled.replica().run_once()
    assert first in filled.bundle, "the CA's Secret holds the bundle too"


async def test_a_bundle_that_cannot_be_written_delays_the_new_ca_only(filled: Cluster) -> None:
    [old] = filled.bundle
    replica = filled.replica()
    filled.replace_ca()
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
    "changes",
    [
        {"ca_key": None},
        {"ca_key": encrypted_key()},
        {"ca_crt": NOT_PEM},
        {"ca_crt": b"\xff", "ca_key": b"\xff", "old_crt": b"\xff"},
    ],
)
async def test_a_damaged_ca_is_repaired_while_what_serves_stays_trusted(
    filled: Cluster, changes: dict[str, bytes | None]
) -> None:
    [old], shown, replica = filled.bundle, filled.serving, filled.replica()
    filled.store.edit(CA, **changes)
    await replica.run_once()
    assert filled.serving == shown
    assert filled.bundle[0].public_key != old.public_key
    for _ in range(3):
        assert any(filled.serving.is_signed_by(one) for one in filled.bundle)
        await replica.run_once(minutes=45)
    assert filled.serving.is_signed_by(filled.bundle[0])
    await replica.run_once(hours=25)
    assert len(filled.bundle) == 1


async def test_a_ca_of_accelbind_that_was_put_in_by_hand_is_adopted_in_steps(
    filled: Cluster,
) -> None:
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


@pytest.mark.parametrize("damage", ["no key", "garbled", "another key", "unknown CA", "expired"])
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
        case "expired":
            filled.clock.advance(days=91)
    await filled.replica().run_once()
    assert filled.serving not in (shown, pair.certificate)
    assert filled.serving.is_signed_by(filled.bundle[0])
    key = serialization.load_pem_private_key(filled.secret(TLS)["tls.key"], password=None)
    assert key.public_key() == filled.serving.public_key


async def test_a_ca_that_accelbind_has_not_created_is_neither_used_nor_overwritten(
    filled: Cluster,
) -> None:
    filled.edit_authority(rebuilt(create_authority(filled.clock.now()), "company"))
    secret, pair, bundle = filled.secret(CA), filled.secret(TLS), filled.bundle
    before, replica = len(filled.store.writes), filled.replica()
    for _ in range(2):
        with pytest.raises(CertificateError, match=r"accelbind-ca: .* remove ca\.key and ca\.crt"):
            await replica.run_once(minutes=2)
    assert len(filled.store.writes) == before
    assert (filled.secret(CA), filled.secret(TLS), filled.bundle) == (secret, pair, bundle)
    filled.store.edit(CA, ca_crt=None, ca_key=None)
    assert (await replica.run_once()).problems == ()


async def test_odd_certificates_beside_good_ones_stop_no_round(filled: Cluster) -> None:
    """They leave the bundle; in `ca.crt` they would be a CA of somebody else."""
    [own], odd, replica = filled.bundle, b"".join(ODD.values()), filled.replica()
    for name, key in ((CA, "old.crt"), (TLS, "tls.crt")):
        text = filled.secret(name).get(key, b"")
        filled.store.put(name, filled.secret(name) | {key: text + odd})
    filled.edit_bundles(odd + own.pem)
    with capture_logs() as logs:
        reports = [await replica.run_once(minutes=2) for _ in range(3)]
    told = [each["log_level"] for each in logs if "leave the bundle" in each["event"]]
    assert told == ["warning"]
    assert [report.problems for report in reports] == [()] * 3
    assert own in filled.bundle
    for _ in range(4):
        await replica.run_once(days=30)
    assert not filled.serving.validity_error(filled.clock.now())
    assert filled.serving.is_signed_by(filled.bundle[0])


async def test_configurations_that_do_not_exist_are_reported(cluster: Cluster) -> None:
    stored = cluster.store.objects.pop(MUTATING)
    replica = cluster.replica()
    report = await replica.run_once()
    [problem] = report.problems
    assert f"{MUTATING}: it does not exist" in problem
    cluster.store.objects[MUTATING] = stored
    assert (await replica.run_once()).problems == ()
    assert len(cluster.bundle) == 1


async def test_clocks_that_went_back_leave_nothing_from_the_future(cluster: Cluster) -> None:
    await cluster.replica().run_once(days=30)
    [future] = cluster.bundle
    await cluster.replica().run_once(days=-30)
    assert cluster.bundle != [future]
    now = cluster.clock.now()
    for certificate in (cluster.serving, *cluster.bundle):
        assert certificate.begins <= now < certificate.ends


async def test_nothing_is_written_while_configurations_cannot_be_read(filled: Cluster) -> None:
    """Whether a CA is trusted is unknown then, and a new one could not be announced."""
    shown, replica = filled.serving, filled.replica()
    filled.store.edit(CA, ca_crt=None, ca_key=None)
    with filled.store.refusing(reads=True):
        for _ in range(2):
            with pytest.raises(ClusterError, match="403"):
                await replica.run_once(minutes=5)
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
    other = filled.replica()
    filled.replace_ca()
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


async def test_renewing_by_command_comes_after_the_write_of_a_replica(filled: Cluster) -> None:
    [old], writes = filled.bundle, list[str]()

    async def refuse_the_first(name: str) -> int | None:
        writes.append(name)
        return 409 if len(writes) == 1 else None

    filled.store.on_write = refuse_the_first
    await renew(filled.store, SETTINGS, authority=False)
    assert writes == [TLS, TLS, TLS]
    assert filled.bundle == [old]


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
    replica = filled.replica()
    if changing:
        filled.replace_ca()
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
