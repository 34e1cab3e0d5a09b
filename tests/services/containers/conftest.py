"""The rack and the kubelet stand-in of the plugin's tests."""

from tests.plugin.conftest import anyio_backend, kubelet, rack

__all__ = ["anyio_backend", "kubelet", "rack"]
