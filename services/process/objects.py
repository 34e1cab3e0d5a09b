"""Objects of Kubernetes as decoded from JSON, and which kind one is: several groups may have it."""

from collections.abc import Mapping
from typing import TypeAlias

Object: TypeAlias = dict[str, object]


def is_kind(obj: object, kind: str, *groups: str) -> bool:
    """Whether an object is of a kind of one of these API groups, in any version.

    The core group is the empty text. An object without `apiVersion` is of the group in question.
    """
    if not isinstance(obj, Mapping) or obj.get("kind") != kind:
        return False
    version = obj.get("apiVersion")
    return version is None or (isinstance(version, str) and group_of(version) in groups)


def group_of(version: str) -> str:
    """The API group of an `apiVersion`."""
    return version.rpartition("/")[0]
