"""The rack and the kubelet stand-in of the plugin's tests."""

from tests.plugin.conftest import bed, kubelet, rack

__all__ = ["bed", "kubelet", "rack"]
