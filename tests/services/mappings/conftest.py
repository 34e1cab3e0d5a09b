"""Tests speak to servers of their own, past any proxy."""

from tests.services.kube.conftest import anyio_backend, no_proxy

__all__ = ["anyio_backend", "no_proxy"]
