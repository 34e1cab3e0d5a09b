"""Faults that a test switches on: failures of a server that clients must survive.

Each is a context manager on `ApiServerStandIn`, or a call where it happens once. Those here change
answers; those that concern connections (refused, cut, silent) are in `standin`, those of watches in
`watching`.
"""

import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from simulator.apiserver import wire
from simulator.apiserver.http_server import Request, Response
from simulator.apiserver.status import StatusError
from simulator.apiserver.store import event_line

Matches: TypeAlias = Callable[[Request], bool]


def every(_request: Request) -> bool:
    """Matches every request."""
    return True


def watches(request: Request) -> bool:
    """Matches watches."""
    return request.query.get("watch") in ("1", "true")


def lists(request: Request) -> bool:
    """Matches GETs that are no watches."""
    return request.method == "GET" and not watches(request)


@dataclass(eq=False, slots=True)
class _Burst:
    matches: Matches
    left: int | None
    answer: Callable[[], Response]


@dataclass(slots=True)
class Faults:
    """What is switched on."""

    watches_end_at_once: bool = False
    """Each watch is answered with 200 and a proper end, and nothing in between."""
    watches_cut_at_once: bool = False
    """Each watch is cut in the middle of its first line."""
    bookmarks_need_version: bool = False
    """A watch with bookmarks and without a version ends with an ERROR event: a 1.36 API server
    makes a list and a watch of it, which fails where storage can't serve progress requests."""
    _bursts: list[_Burst] = field(default_factory=list)

    @contextlib.contextmanager
    def answering(
        self, answer: Callable[[], Response], *, count: int | None = None, matches: Matches = every
    ) -> Iterator[None]:
        """Answer matching requests with `answer()`, at most `count` times."""
        burst = _Burst(matches, count, answer)
        self._bursts.append(burst)
        try:
            yield
        finally:
            self._bursts.remove(burst)

    def failing(
        self,
        code: int,
        *,
        count: int | None = None,
        retry_after: int | None = None,
        matches: Matches = every,
    ) -> contextlib.AbstractContextManager[None]:
        """Answer matching requests with an error such as 429, 500, 503 or 504.

        Args:
            code: HTTP status.
            count: how many requests, None for all until the end of the block.
            retry_after: seconds to put into `Retry-After`.
            matches: which requests.
        """
        headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
        reason = {429: "TooManyRequests", 503: "ServiceUnavailable"}.get(code, "InternalError")
        error = StatusError(code, reason, f"a fault of the stand-in: {code}")
        answer = Response(code, error.body(), tuple(headers.items()))
        return self.answering(lambda: answer, count=count, matches=matches)

    def watches_failing(
        self, code: int, *, count: int | None = None, matches: Matches = watches
    ) -> contextlib.AbstractContextManager[None]:
        """Answer matching watches with 200 and an ERROR event, at once."""
        error = StatusError(code, "InternalError", f"a fault of the stand-in: {code}")
        line = event_line("ERROR", wire.encode(error.status()))
        return self.replaying(line, stream=True, count=count, matches=matches)

    def replaying(
        self, body: bytes, *, stream: bool = False, count: int | None = None, matches: Matches
    ) -> contextlib.AbstractContextManager[None]:
        """Answers matching requests with these bytes: a recorded list or (as a stream) a watch."""
        if not stream:
            return self.answering(lambda: Response(200, body), count=count, matches=matches)

        return self.answering(
            lambda: Response(200, stream=_pieces(body)), count=count, matches=matches
        )

    async def before(self, request: Request) -> Response | None:
        """The answer of a fault that is switched on for this request; None without one."""
        for burst in reversed(self._bursts):
            if burst.left != 0 and burst.matches(request):
                burst.left = None if burst.left is None else burst.left - 1
                return burst.answer()
        return None


async def _pieces(*pieces: bytes) -> AsyncGenerator[bytes]:
    for piece in pieces:
        yield piece
