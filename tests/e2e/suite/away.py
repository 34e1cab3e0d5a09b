"""The webhook being away: pods without an FPGA don't notice, the others are refused."""

from services.names import DOMAIN
from tests.e2e.hosts import Hosts
from tests.e2e.pods import Pods, simple

NLB0_NAME = f"{DOMAIN}/arria10-nlb0"


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
