"""The end-to-end suite where it can't do its work: one sentence, and nothing left."""

import pytest

from tests.e2e.api import Api, Place
from tests.e2e.simulator import simulated
from tests.support import Processes, python_module

pytestmark = pytest.mark.timeout(900)


@pytest.mark.soak
def test_a_webhook_that_the_api_server_cant_call_ends_the_run(processes: Processes) -> None:
    with simulated() as stands_in:
        told = stands_in.environment() | {"WEBHOOK_HOST": "nobody.invalid", "PATIENCE": "3"}
        process = processes.start(python_module("tests.e2e"), env=told, name="e2e")
        assert process.wait(600) == 2, process.transcript()
        assert "waiting for the API server to call the webhook" in process.stdout
        assert "WEBHOOK_HOST=… names an address" in process.stdout
        assert "passed" not in process.stdout
        with Api(stands_in.kubeconfig) as api:
            namespaces = [each["metadata"]["name"] for each in api.list(Place("v1", "Namespace"))]
        assert not any(name.startswith("accelbind-e2e-") for name in namespaces)
