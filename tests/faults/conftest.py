"""The rack and the kubelet stand-in of the plugin's tests."""

from tests.plugin.conftest import kubelet, rack

__all__ = ["kubelet", "rack"]
