"""The kubelet stand-in of the plugin's tests."""

from tests.plugin.conftest import kubelet

__all__ = ["kubelet"]
