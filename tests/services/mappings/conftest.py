"""Tests speak to servers of their own, past any proxy."""

from tests.services.kube.conftest import no_proxy

__all__ = ["no_proxy"]
