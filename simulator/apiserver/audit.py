"""The audit log: one `audit.k8s.io/v1` Event per line, for requests that change something.

Webhooks' `auditAnnotations` appear as on a real API server, with the webhook's name before them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO
from uuid import uuid4

from simulator.apiserver import wire
from simulator.apiserver.identity import Identity
from simulator.apiserver.wire import Json


@dataclass(slots=True)
class Trail:
    """What a request leaves: annotations for the log, warnings for the client."""

    annotations: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def warn(self, text: str) -> None:
        """Add a warning, once."""
        if text not in self.warnings:
            self.warnings.append(text)

    def annotate(self, name: str, value: object) -> None:
        """Add an annotation; objects become JSON, and the first value stays."""
        self.annotations.setdefault(name, value if isinstance(value, str) else json.dumps(value))


class AuditLog:
    """Writes the log, and keeps its newest entries for tests of this process."""

    def __init__(self, path: Path | None) -> None:
        self.entries: list[Json] = []
        self._file: IO[bytes] | None = None if path is None else path.open("ab", buffering=0)

    def write(
        self,
        *,
        verb: str,
        uri: str,
        identity: Identity,
        reference: Mapping[str, str],
        code: int,
        trail: Trail,
        time: str,
    ) -> None:
        """Writes one entry."""
        entry: Json = {
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": "Metadata",
            "auditID": str(uuid4()),
            "stage": "ResponseComplete",
            "requestURI": uri,
            "verb": verb,
            "user": identity.user_info(),
            "objectRef": dict(reference),
            "responseStatus": {"code": code},
            "requestReceivedTimestamp": time,
            "annotations": dict(sorted(trail.annotations.items())),
        }
        self.entries.append(entry)
        del self.entries[:-1000]
        if self._file is not None:
            self._file.write(wire.encode(entry) + b"\n")

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
