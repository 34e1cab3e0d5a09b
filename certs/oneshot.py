"""What is done to a cluster's certificates once, by hand: renew them, put the bundle in."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from certs.clock import ClusterClock
from certs.contents import Contents, cluster_client, from_cluster
from certs.keeper import ATTEMPTS, Keeper, Orders, Outcome
from certs.reading import bundle_pem, names_of, signer_of
from certs.settings import CertsSettings
from certs.trust import Rules, Trust
from services.kube.client import ClusterClient
from services.kube.objects import PLURALS, Conflict, put_bundle, read_configuration
from services.process.errors import CertificateError, ClusterError


async def renew(
    settings: CertsSettings, *, authority: bool, waiting: Callable[[timedelta], None]
) -> Outcome:
    """Renews the serving certificate now; with `authority`, by way of a new CA.

    Args:
        settings: Where the certificates are and how they are to be.
        authority: Whether the CA is changed.
        waiting: Told once how long a new CA has to wait before it serves.

    Raises:
        CertificateError: What is in the CA's Secret is for a person to see to.
        ClusterError: The API server is away or says no, or the bundle can't be put in.
    """
    orders = Orders(authority=authority, serving=not authority)
    async with cluster_client(settings.kubeconfig) as client:
        held = await from_cluster(client, settings.places)
        rules = _with_names(settings.rules, held)
        keeper = Keeper(settings.places, rules, ClusterClock(), orders, behind=_unasked)
        outcome = await keeper.round(client)
        _refuse_problems(outcome)
        if outcome.moving:
            waiting(settings.settle)
        while outcome.moving:
            await asyncio.sleep(0.5)
            outcome = await keeper.round(client)
            _refuse_problems(outcome)
    return outcome


async def inject(settings: CertsSettings, folder: Contents | None) -> tuple[list[str], list[str]]:
    """Puts a bundle into the webhook configurations.

    Args:
        settings: Where they are.
        folder: Whose CAs to put in; those of the CA's Secret if None.

    Returns:
        The configurations that there are, and those of them that have been changed.

    Raises:
        CertificateError: The Secret or folder has no CA.
        ClusterError: It can't be put in, or there is no such configuration.
    """
    async with cluster_client(settings.kubeconfig) as client:
        for _ in range(ATTEMPTS):
            try:
                return await _inject(client, settings, folder)
            except Conflict:
                await asyncio.sleep(0.05)
    raise ClusterError("the webhook configurations are being changed all the time")


async def look(settings: CertsSettings) -> Contents:
    """What the cluster holds.

    Raises:
        ClusterError: It can't be had.
    """
    async with cluster_client(settings.kubeconfig) as client:
        return await from_cluster(client, settings.places)


async def _inject(
    client: ClusterClient, settings: CertsSettings, folder: Contents | None
) -> tuple[list[str], list[str]]:
    places = settings.places
    read = [
        await read_configuration(client, plural, name)
        for plural in PLURALS
        for name in places.configurations
    ]
    found = [one for one in read if one is not None]
    if not found:
        names = ", ".join(places.configurations)
        raise ClusterError(f"there is no webhook configuration called {names}")
    contents = folder or await from_cluster(client, places)
    bundle = bundle_pem(contents.authorities)
    if not bundle:
        remedy = "" if folder else ": accelbind certs run makes one, accelbind certs renew does too"
        raise CertificateError(f"{contents.authority_at} holds no CA{remedy}")
    owner = contents.served_by(places).owner
    changed = [one.name for one in found if await put_bundle(client, one, bundle, owner)]
    return [one.name for one in found], changed


async def _unasked(_: Trust) -> tuple[str, ...]:
    """Old CAs stay: letting them go is left to `certs run`, which can ask the replicas."""
    return ("nobody was asked",)


def _with_names(rules: Rules, held: Contents) -> Rules:
    """Also the names that the certificate has now, which `certs run` may have been told."""
    if signer_of(held.chain, held.authorities) is None:
        return rules
    names = dict.fromkeys((*rules.names, *names_of(held.chain[0])))
    return replace(rules, names=tuple(names))


def _refuse_problems(outcome: Outcome) -> None:
    if outcome.problems:
        raise ClusterError("; ".join(outcome.problems))
