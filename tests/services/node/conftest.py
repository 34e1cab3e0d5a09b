"""The rack and the kubelet stand-in of the plugin's tests."""

from tests.plugin.conftest import anyio_backend, bed, kubelet, rack

__all__ = ["anyio_backend", "bed", "kubelet", "rack"]
