"""The webhook while it is away, and while its CA and its certificate change."""

import base64
import threading
from typing import Self

from services.names import DOMAIN
from tests.e2e.api import accelbind, until
from tests.e2e.hosts import SETTLE, Hosts
from tests.e2e.pods import Pods, simple
from tests.support import eventually

NLB0_NAME = f"{DOMAIN}/arria10-nlb0"
SECONDS = 120.0


def test_only_pods_with_an_fpga_are_refused_while_the_webhook_is_away(
    pods: Pods, hosts: Hosts
) -> None:
    asking = simple("asking", {NLB0_NAME: 1})
    pods.admitted(asking)
    hosts.running["webhook"].kill()
    try:
        assert pods.try_out(simple("plain", {}))
        refused = pods.refusal(asking)
        assert "failed calling webhook" in refused.text
        assert pods.try_out(simple("plain", {}))
    finally:
        hosts.start_webhook()
    pods.admitted(asking)


class Creating:
    """Pods being created, one after the other, in a thread; keeps the refusals."""

    def __init__(self, pods: Pods) -> None:
        self.count = 0
        self.refusals: list[str] = []
        self._pods = pods
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._create, name="creating", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(30)

    def _create(self) -> None:
        while not self._ended.is_set():
            try:
                self._pods.try_out(simple(f"pod-{self.count}", {NLB0_NAME: 1}))
            except Exception as error:  # noqa: BLE001 - whatever it is, a pod was not created
                self.refusals.append(str(error))
            self.count += 1


def test_no_pod_is_refused_while_the_ca_changes(pods: Pods, hosts: Hosts) -> None:
    pods.admitted(simple("first", {NLB0_NAME: 1}))
    before = hosts.until_bundled()
    shown = hosts.served()
    with Creating(pods) as creating:
        eventually(lambda: creating.count > 3, what="pods")
        accelbind("certs", "renew", "--ca", *hosts.certificates, "--settle", SETTLE)

        def new_certificate() -> None:
            assert hosts.served() != shown, f"the old one\n{hosts.told('certs')}"

        until(new_certificate, seconds=SECONDS, what="a certificate of the new CA to be served")

        (bundle,) = hosts.bundles()
        old, new = (base64.b64decode(each).count(b"BEGIN") for each in (before, bundle))
        assert new == old + 1, "both CAs are trusted"
        done = creating.count
        eventually(lambda: creating.count > done + 3, what="more pods")
    assert creating.refusals == []
