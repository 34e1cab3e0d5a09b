import pytest

from simulator.apiserver.standin import ApiServerStandIn
from tests.certs.cluster import apply_manifests


@pytest.fixture
def api(api: ApiServerStandIn) -> ApiServerStandIn:
    """An API server in which the manifests have just been applied."""
    apply_manifests(api)
    return api
