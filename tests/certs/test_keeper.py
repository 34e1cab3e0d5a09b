"""What is kept in a cluster's Secrets and webhook configurations, and what becomes of damage."""

import asyncio
import base64
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from certs import trust
from certs.authority import (
    certificate_pem,
    issue_serving,
    key_pem,
    make_authority,
    parse_names,
)
from certs.keeper import Orders
from certs.reading import MOST_CERTIFICATES, certificates_in, names_of, signed
from services.process.errors import CertificateError, ClusterError
from simulator.apiserver.http_server import Request, Response
from simulator.apiserver.standin import ApiServerStandIn
from tests.certs.cluster import (
    CA,
    HOST,
    MUTATING,
    NAMESPACE,
    TLS,
    VALIDATING,
    Cluster,
    bundles,
    configuration,
    edit_secret,
    empty_secret,
    entry,
    secret,
    serving,
    the_bundle,
)

pytestmark = pytest.mark.anyio


def puts(api: ApiServerStandIn) -> list[str]:
    return [f"{seen.target.partition('?')[0]}" for seen in api.seen if seen.method == "PUT"]


async def test_empty_secrets_are_filled_and_the_bundle_is_put_in(cluster: Cluster) -> None:
    api = cluster.api
    keeper = await cluster.keeper()
    outcome = await keeper.round()
    assert outcome.problems == ()
    assert not outcome.moving
    [ca] = the_bundle(api)
    assert len(bundles(api)) == 3
    assert signed(serving(api), ca)
    assert secret(api, TLS)["ca.crt"] == certificate_pem(ca) == secret(api, CA)["ca.crt"]
    assert set(secret(api, CA)) == {"ca.crt", "ca.key"}


async def test_what_is_right_is_left_alone(cluster: Cluster) -> None:
    keeper = await cluster.keeper()
    await keeper.round()
    before = len(puts(cluster.api))
    await keeper.round()
    await (await cluster.keeper()).round()
    assert len(puts(cluster.api)) == before


async def test_only_get_and_update_of_what_is_named_are_asked_for(cluster: Cluster) -> None:
    keeper = await cluster.keeper()
    await keeper.round()
    group = "/apis/admissionregistration.k8s.io/v1"
    allowed = {
        f"/api/v1/namespaces/{NAMESPACE}/secrets/{CA}",
        f"/api/v1/namespaces/{NAMESPACE}/secrets/{TLS}",
        f"{group}/mutatingwebhookconfigurations/accelbind",
        f"{group}/validatingwebhookconfigurations/accelbind",
    }
    asked = [(seen.method, seen.target.partition("?")[0]) for seen in cluster.api.seen]
    assert {method for method, _ in asked} == {"GET", "PUT"}
    assert {path for _, path in asked} == allowed


async def test_only_the_bundle_of_a_configuration_changes(cluster: Cluster) -> None:
    api, keeper = cluster.api, await cluster.keeper()
    await keeper.round()
    full = api.get(MUTATING, "accelbind")
    assert full is not None
    full["webhooks"][0]["clientConfig"].pop("caBundle")
    full["metadata"] |= {"labels": {"a": "b"}, "annotations": {"c": "d"}}
    before = api.put(full)
    await keeper.round()
    after = api.get(MUTATING, "accelbind")
    assert after is not None
    assert after["webhooks"][0]["clientConfig"].pop("caBundle")
    before["webhooks"][0]["clientConfig"].pop("caBundle", None)
    changing = {"resourceVersion", "generation", "managedFields"}
    for item in (before, after):
        for name in changing:
            item["metadata"].pop(name, None)
    assert after == before


async def test_entries_of_other_services_and_urls_are_left_alone(cluster: Cluster) -> None:
    api = cluster.api
    stranger = make_authority(cluster.clock.now(), timedelta(days=1)).certificate
    theirs = base64.b64encode(certificate_pem(stranger)).decode()
    entries = (
        entry("x.example.dev", service={"name": "other", "namespace": "elsewhere"}),
        entry("z.example.dev", url="https://other.example:8443/mutate", caBundle=theirs),
        entry("y.accelbind.dev", url="https://127.0.0.1:1/mutate"),
        entry("y.example.dev", url=f"https://{HOST}:8443/mutate"),
    )
    api.put(configuration(MUTATING, *entries))
    assert (await (await cluster.keeper()).round()).problems == ()
    item = api.get(MUTATING, "accelbind")
    assert item is not None
    ours = base64.b64encode(secret(api, CA)["ca.crt"]).decode()
    held = [each["clientConfig"].get("caBundle", "") for each in item["webhooks"]]
    assert held == ["", theirs, ours, ours]


async def test_a_bundle_that_is_wiped_comes_back(cluster: Cluster) -> None:
    keeper = await cluster.keeper()
    await keeper.round()
    [ca] = the_bundle(cluster.api)
    cluster.api.put(configuration(VALIDATING))
    assert b"" in bundles(cluster.api)
    await keeper.round()
    assert the_bundle(cluster.api) == (ca,)


async def test_configurations_may_come_later(cluster: Cluster) -> None:
    api = cluster.api
    api.drop(MUTATING, "accelbind")
    keeper = await cluster.keeper()
    outcome = await keeper.round()
    assert outcome.missing == ("mutatingwebhookconfigurations/accelbind",)
    assert outcome.problems == ()
    api.put(configuration(MUTATING))
    assert (await keeper.round()).missing == ()
    assert len(the_bundle(api)) == 1


async def test_what_cert_manager_looks_after_is_left_to_it(cluster: Cluster) -> None:
    note = {"cert-manager.io/inject-ca-from": "a/b"}
    cluster.api.put(configuration(VALIDATING, annotations=note))
    outcome = await (await cluster.keeper()).round()
    [problem] = outcome.problems
    assert "cert-manager puts its bundle in" in problem
    assert bundles(cluster.api)[-1] == b""


async def test_serving_certificates_are_renewed_at_two_thirds_of_their_life(
    cluster: Cluster,
) -> None:
    keeper = await cluster.keeper()
    await keeper.round()
    first = serving(cluster.api)
    cluster.clock.pass_(days=59)
    await keeper.round()
    assert serving(cluster.api) == first
    cluster.clock.pass_(days=2)
    await keeper.round()
    assert serving(cluster.api) != first
    assert len(the_bundle(cluster.api)) == 1


async def test_a_ca_takes_over_in_steps(cluster: Cluster) -> None:
    """New bundle; then, settled, a certificate of the new CA; then, overlapped, without the old."""
    api, clock = cluster.api, cluster.clock
    cluster.rule(authority_lifetime=timedelta(days=135))
    keepers = [await cluster.keeper(), await cluster.keeper()]
    await keepers[0].round()
    [old] = the_bundle(api)
    for days in (61, 30):
        clock.pass_(days=days)
        for each in keepers:
            await each.round()
    new, kept = the_bundle(api)
    assert kept == old
    assert signed(serving(api), old)
    clock.pass_(seconds=61)
    await keepers[1].round()
    assert signed(serving(api), new)
    clock.pass_(days=3)
    await keepers[0].round()
    assert the_bundle(api) == (new, old), "the overlap counts from when it was seen to serve"
    clock.pass_(minutes=59)
    await keepers[1].round()
    assert the_bundle(api) == (new, old)
    clock.pass_(minutes=2)
    await keepers[1].round()
    assert the_bundle(api) == (new,)
    assert set(secret(api, CA)) == {"ca.crt", "ca.key"}


async def test_a_new_ca_serves_only_once_its_bundle_has_settled(cluster: Cluster) -> None:
    api, clock = cluster.api, cluster.clock
    await (await cluster.keeper()).round()
    [old] = the_bundle(api)
    keeper = await cluster.keeper(Orders(authority=True))
    for _ in range(3):
        assert (await keeper.round()).moving
        assert signed(serving(api), old)
        clock.pass_(seconds=19)
    clock.pass_(seconds=19)
    assert not (await keeper.round()).moving
    assert not signed(serving(api), old)


async def test_what_serves_stays_trusted_however_often_the_ca_is_changed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert trust.MOST_OLD < MOST_CERTIFICATES  # with the one that signs, as many as are read
    monkeypatch.setattr(trust, "MOST_OLD", 3)
    api = cluster.api
    await (await cluster.keeper()).round()
    first, shown = the_bundle(api)[0], serving(api)
    for _ in range(6):
        keeper = await cluster.keeper(Orders(authority=True))
        assert (await keeper.round()).moving
        assert first in the_bundle(api)
        assert serving(api) == shown
    assert len(the_bundle(api)) == 4


async def test_a_replica_is_trusted_whose_certificate_is_many_cas_old(cluster: Cluster) -> None:
    api = cluster.api
    await (await cluster.keeper()).round()
    first = the_bundle(api)[0]
    for _ in range(12):
        keeper = await cluster.keeper(Orders(authority=True))
        assert (await keeper.round()).moving
        cluster.clock.pass_(minutes=2)
        assert not (await keeper.round()).moving
    assert first in the_bundle(api)


async def test_a_bundle_that_cannot_be_put_in_holds_up_the_new_ca_only(cluster: Cluster) -> None:
    api, clock = cluster.api, cluster.clock
    await (await cluster.keeper()).round()
    [old] = the_bundle(api)
    keeper = await cluster.keeper(Orders(authority=True))

    def of_configurations(request: Request) -> bool:
        return request.method == "PUT" and "webhookconfigurations" in request.path

    with api.faults.failing(403, matches=of_configurations):
        for _ in range(3):
            await keeper.round()
            clock.pass_(hours=5)
        outcome = await keeper.round()
    assert len(outcome.problems) == 2
    assert "RBAC" in outcome.problems[0]
    assert signed(serving(api), old)
    await keeper.round()
    clock.pass_(minutes=2)
    assert (await keeper.round()).problems == ()
    assert signed(serving(api), the_bundle(api)[0])


@pytest.mark.parametrize(
    ("changes", "new_ca"),
    [
        ({"ca_key": None}, True),
        ({"ca_key": b""}, True),
        ({"ca_key": b"-----BEGIN PRIVATE KEY-----\nxxxx\n-----END PRIVATE KEY-----\n"}, True),
        ({"ca_crt": None}, False),
        ({"ca_crt": b"-----BEGIN CERTIFICATE-----\nxxxx\n-----END CERTIFICATE-----\n"}, False),
        ({"ca_crt": None, "ca_key": None}, True),
        ({"ca_crt": b"\xff", "ca_key": b"\xff", "old_crt": b"\xff", "old_until": b"\xff"}, True),
    ],
)
async def test_a_damaged_ca_is_repaired_and_what_serves_stays_trusted(
    cluster: Cluster, changes: dict[str, bytes | None], new_ca: bool
) -> None:
    api, clock = cluster.api, cluster.clock
    keeper = await cluster.keeper()
    await keeper.round()
    [old], shown = the_bundle(api), serving(api)
    edit_secret(api, CA, **changes)
    await keeper.round()
    assert serving(api) == shown
    assert any(signed(shown, one) for one in the_bundle(api))
    assert (the_bundle(api)[0].public_key() != old.public_key()) is new_ca
    for _ in range(3):
        clock.pass_(minutes=45)
        await keeper.round()
        assert any(signed(serving(api), one) for one in the_bundle(api))
    clock.pass_(minutes=61)
    await keeper.round()
    assert len(the_bundle(api)) == 1


async def test_where_both_secrets_are_lost_replicas_stay_trusted_that_show_what_they_have(
    cluster: Cluster,
) -> None:
    api, clock = cluster.api, cluster.clock
    keeper = await cluster.keeper()
    await keeper.round()
    [old], shown = the_bundle(api), serving(api)
    for name in (CA, TLS):
        api.put(empty_secret(name))
    await (await cluster.keeper()).round()
    assert serving(api) != shown
    assert signed(serving(api), the_bundle(api)[0])
    assert the_bundle(api)[1:] == (old,)
    await keeper.round()
    clock.pass_(minutes=61)
    await keeper.round()
    assert len(the_bundle(api)) == 1


async def test_a_ca_that_was_put_there_by_hand_takes_over_in_steps(cluster: Cluster) -> None:
    api, clock = cluster.api, cluster.clock
    keeper = await cluster.keeper()
    await keeper.round()
    [old], shown = the_bundle(api), serving(api)
    mine = make_authority(clock.now(), timedelta(days=1000))
    edit_secret(api, CA, ca_crt=certificate_pem(mine.certificate), ca_key=key_pem(mine.key))
    await keeper.round()
    assert the_bundle(api) == (mine.certificate, old)
    assert serving(api) == shown
    clock.pass_(minutes=2)
    await keeper.round()
    assert signed(serving(api), mine.certificate)


async def test_certificates_made_by_other_means_are_taken_over_from(cluster: Cluster) -> None:
    """Whoever ran `certs issue` and pasted the bundle loses no handshake."""
    api, clock = cluster.api, cluster.clock
    theirs = make_authority(clock.now(), timedelta(days=1000))
    pair = issue_serving(theirs, parse_names([HOST]), clock.now(), timedelta(days=100))
    edit_secret(api, TLS, tls_crt=certificate_pem(pair.certificate), tls_key=key_pem(pair.key))
    by_hand = base64.b64encode(certificate_pem(theirs.certificate)).decode()
    for kind in (MUTATING, VALIDATING):
        made = entry("pods.accelbind.dev")
        made["clientConfig"]["caBundle"] = by_hand
        api.put(configuration(kind, made))
    keeper = await cluster.keeper()
    await keeper.round()
    assert serving(api) == pair.certificate
    assert theirs.certificate in the_bundle(api)
    clock.pass_(minutes=2)
    await keeper.round()
    assert serving(api) != pair.certificate


@pytest.mark.parametrize("damage", ["no key", "garbled", "another key", "stranger", "ended"])
async def test_a_serving_pair_that_nobody_can_use_is_replaced_at_once(
    cluster: Cluster, damage: str
) -> None:
    api, clock = cluster.api, cluster.clock
    keeper = await cluster.keeper()
    await keeper.round()
    shown = serving(api)
    stranger = make_authority(clock.now(), timedelta(days=1000))
    pair = issue_serving(stranger, parse_names([HOST]), clock.now(), timedelta(days=100))
    match damage:
        case "no key":
            edit_secret(api, TLS, tls_key=b"")
        case "garbled":
            edit_secret(api, TLS, tls_crt=b"-----BEGIN CERTIFICATE-----\nhalf")
        case "another key":
            edit_secret(api, TLS, tls_key=key_pem(pair.key))
        case "stranger":
            certificate = certificate_pem(pair.certificate)
            edit_secret(api, TLS, tls_crt=certificate, tls_key=key_pem(pair.key))
        case "ended":
            clock.pass_(days=91)
    await keeper.round()
    assert serving(api) not in (shown, pair.certificate)
    assert signed(serving(api), the_bundle(api)[0])
    key = serialization.load_pem_private_key(secret(api, TLS)["tls.key"], password=None)
    assert key.public_key() == serving(api).public_key()


async def test_a_ca_key_of_another_kind_is_refused_and_not_overwritten(cluster: Cluster) -> None:
    api = cluster.api
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    edit_secret(api, CA, ca_key=pem)
    with pytest.raises(CertificateError, match=r"accelbind-ca: the key is .*RSA.*put in an unenc"):
        await (await cluster.keeper()).round()
    assert secret(api, CA) == {"ca.key": pem}
    assert secret(api, TLS) == {}


async def test_other_keys_of_a_secret_stay(cluster: Cluster) -> None:
    edit_secret(cluster.api, CA, note=b"of the operator")
    await (await cluster.keeper()).round()
    assert secret(cluster.api, CA)["note"] == b"of the operator"


async def test_a_secret_that_is_not_there_is_told(cluster: Cluster) -> None:
    cluster.api.drop("Secret", TLS, NAMESPACE)
    with pytest.raises(ClusterError, match="no Secret accelbind-system/accelbind-webhook-tls"):
        await (await cluster.keeper()).round()


async def test_clocks_that_went_back_leave_nothing_from_the_future(cluster: Cluster) -> None:
    api, clock = cluster.api, cluster.clock
    keeper = await cluster.keeper()
    clock.pass_(days=30)
    await keeper.round()
    [future] = the_bundle(api)
    clock.pass_(days=-30)
    await keeper.round()
    assert the_bundle(api) != (future,)
    now = clock.now()
    for certificate in (serving(api), *the_bundle(api)):
        assert certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc


async def test_replicas_that_start_in_the_same_instant_agree(cluster: Cluster) -> None:
    keepers = [await cluster.keeper() for _ in range(5)]
    outcomes = await asyncio.gather(*[each.round() for each in keepers])
    assert len({each.trust.bundle for each in outcomes}) == 1
    assert the_bundle(cluster.api) == certificates_in(outcomes[0].trust.bundle).all
    assert sum(each.keeper.counts.written["ca"] for each in keepers) == 1
    assert sum(each.keeper.counts.written["serving"] for each in keepers) == 1
    assert puts(cluster.api)


async def test_a_pair_that_is_no_cas_is_refused_and_not_overwritten(cluster: Cluster) -> None:
    api = cluster.api
    authority = make_authority(cluster.clock.now(), timedelta(days=100))
    pair = issue_serving(authority, parse_names([HOST]), cluster.clock.now(), timedelta(days=50))
    edit_secret(api, CA, ca_crt=certificate_pem(pair.certificate), ca_key=key_pem(pair.key))
    with pytest.raises(CertificateError, match=r"not a CA's.*take ca\.key and ca\.crt out"):
        await (await cluster.keeper()).round()
    assert secret(api, CA)["ca.key"] == key_pem(pair.key)


async def test_what_serves_stays_while_nobody_may_look_at_the_configurations(
    cluster: Cluster,
) -> None:
    """Whether its CA is trusted can't be told then, and a new one could not be made known."""
    api, clock = cluster.api, cluster.clock
    await (await cluster.keeper()).round()
    shown = serving(api)
    edit_secret(api, CA, ca_crt=None, ca_key=None)
    keeper = await cluster.keeper()

    def of_configurations(request: Request) -> bool:
        return "webhookconfigurations" in request.path

    with api.faults.failing(403, matches=of_configurations):
        outcome = await keeper.round()
        clock.pass_(minutes=5)
        await keeper.round()
    assert len(outcome.problems) == 2
    assert serving(api) == shown
    await keeper.round()
    assert serving(api) == shown
    assert any(signed(shown, one) for one in the_bundle(api))
    clock.pass_(minutes=2)
    await keeper.round()
    assert signed(serving(api), the_bundle(api)[0])


async def test_a_certificate_that_lacks_a_name_is_renewed_at_once(cluster: Cluster) -> None:
    api = cluster.api
    await (await cluster.keeper()).round()
    cluster.rule(names=parse_names([HOST, "other.svc"]))
    await (await cluster.keeper()).round()
    assert [name.value for name in names_of(serving(api))] == [HOST, "other.svc"]
    longer = serving(api)
    cluster.rule(names=parse_names([HOST]))
    await (await cluster.keeper()).round()
    assert serving(api) == longer, "replicas of two versions would undo each other's work"


async def test_an_answer_that_got_lost_is_no_harm(cluster: Cluster) -> None:
    """The write has happened, and whoever wrote doesn't know."""
    api = cluster.api
    keeper = await cluster.keeper()
    await keeper.round()
    cluster.clock.pass_(days=61)
    write = api._api.handle
    lost: list[Request] = []

    async def lose_the_first_put(request: Request) -> Response:
        answer = await write(request)
        if request.method == "PUT" and not lost:
            lost.append(request)
            return Response(504, b"{}")
        return answer

    api._server.handler = lose_the_first_put
    with pytest.raises(ClusterError, match="answers 504"):
        await keeper.round()
    written = serving(api)
    await keeper.round()
    assert serving(api) == written


async def test_a_replica_that_was_held_up_undoes_nothing(cluster: Cluster) -> None:
    """It has read an empty bundle and the CA of that time, and writes when another one counts."""
    api, clock = cluster.api, cluster.clock
    late, quick = await cluster.keeper(), await cluster.keeper()
    await quick.round()
    old = the_bundle(api)
    api.put(configuration(MUTATING))
    answer = api._api.handle
    held, free = asyncio.Event(), asyncio.Event()

    async def hold_the_first_put(request: Request) -> Response:
        if request.method == "PUT" and not held.is_set():
            held.set()
            await free.wait()
        return await answer(request)

    api._server.handler = hold_the_first_put
    working = asyncio.ensure_future(late.round())
    await asyncio.wait_for(held.wait(), 60)
    forced = await cluster.keeper(Orders(authority=True))
    for _ in range(3):
        await forced.round()
        clock.pass_(minutes=1)
    new = the_bundle(api)
    assert new != old
    assert signed(serving(api), new[0])
    free.set()
    await asyncio.wait_for(working, 60)
    assert late.keeper.counts.conflicts == 1
    assert the_bundle(api) == new
