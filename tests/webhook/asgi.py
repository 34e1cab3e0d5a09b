"""Speaking ASGI to the webhook's application without sockets."""

import asyncio
from collections.abc import MutableMapping, Sequence
from typing import Any, TypeAlias

from services.admission.mutate import Policy
from tests.services.building import function, index
from tests.webhook.reviews import NAME
from webhook.app import AdmissionHandler, create_app
from webhook.metrics import AdmissionMetrics

Message: TypeAlias = MutableMapping[str, Any]

JSON = [(b"host", b"webhook"), (b"content-type", b"application/json")]
DISCONNECT: Message = {"type": "http.disconnect"}


class Fixed:
    """Mappings that stay."""

    loaded = True

    def __init__(self) -> None:
        self.index = index(function(NAME, "af"))


class Bench:
    """A handler of reviews and an application around it."""

    def __init__(self, *, max_body: int = 100_000) -> None:
        self.mappings = Fixed()
        self.figures = AdmissionMetrics()
        handler = AdmissionHandler(self.mappings, Policy(), self.figures, max_body=max_body)
        self.app = create_app(handler)

    def ask(
        self,
        path: str,
        *messages: bytes | Message,
        method: str = "POST",
        headers: list[tuple[bytes, bytes]] | None = None,
    ) -> tuple[int, dict[str, str], bytes]:
        """Send a request, its body in as many messages; status, headers and body of the answer.

        The status is 0 where there was no answer.
        """
        scope: dict[str, Any] = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": b"timeout=10s",
            "headers": JSON if headers is None else headers,
        }
        return asyncio.run(self._exchange(scope, _as_messages(messages)))

    async def _exchange(
        self, scope: dict[str, Any], messages: list[Message]
    ) -> tuple[int, dict[str, str], bytes]:
        sent: list[Message] = []

        async def receive() -> Message:
            return messages.pop(0) if messages else DISCONNECT

        async def send(message: Message) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        if not sent:
            return 0, {}, b""
        headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], headers, b"".join(part.get("body", b"") for part in sent[1:])


def _as_messages(parts: Sequence[bytes | Message]) -> list[Message]:
    messages: list[Message] = []
    for position, part in enumerate(parts):
        if isinstance(part, bytes):
            more = position < len(parts) - 1
            messages.append({"type": "http.request", "body": part, "more_body": more})
        else:
            messages.append(part)
    return messages or [{"type": "http.request", "body": b"", "more_body": False}]
