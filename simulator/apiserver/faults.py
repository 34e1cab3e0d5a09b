"""Faults that a test switches on: failures of a server that clients must survive.

Those here change answers, each in a `with` block; of several that match, the newest counts. Those
that concern connections (refused, cut, silent) are in `standin`.
"""

import contextlib
import inspect
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from simulator.apiserver.calls import StatusError
from simulator.apiserver.http_server import Request, Response

Matches: TypeAlias = Callable[[Request], bool]
Answer: TypeAlias = Callable[[Request], Response | Awaitable[Response]]


def every(_request: Request) -> bool:
    return True


def watches(request: Request) -> bool:
    return request.is_watch


def lists(request: Request) -> bool:
    return request.method == "GET" and not request.is_watch


@dataclass(eq=False, slots=True)
class _Burst:
    matches: Matches
    left: int | None
    answer: Answer


class Faults:
    def __init__(self) -> None:
        self._bursts: list[_Burst] = []

    @contextlib.contextmanager
    def answering(
        self, answer: Answer, *, count: int | None = None, matches: Matches = every
    ) -> Iterator[None]:
        """Answer matching requests with `answer(request)`, at most `count` times if given."""
        burst = _Burst(matches, count, answer)
        self._bursts.append(burst)
        try:
            yield
        finally:
            self._bursts.remove(burst)

    def failing(
        self,
        code: int,
        message: str = "a fault of the stand-in",
        *,
        count: int | None = None,
        retry_after: int | None = None,
        matches: Matches = every,
    ) -> contextlib.AbstractContextManager[None]:
        """Answer `count` matching requests with an error; `retry_after` is in seconds."""
        headers = () if retry_after is None else (("Retry-After", str(retry_after)),)
        answer = Response(code, StatusError(code, message).body(), headers)
        return self.answering(lambda _: answer, count=count, matches=matches)

    async def before(self, request: Request) -> Response | None:
        """The answer of a fault that is switched on for this request; None without one."""
        for burst in reversed(self._bursts):
            if burst.left != 0 and burst.matches(request):
                burst.left = None if burst.left is None else burst.left - 1
                answer = burst.answer(request)
                return await answer if inspect.isawaitable(answer) else answer
        return None
