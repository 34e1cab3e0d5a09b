"""Who gets an answer from the page's server, and with which headers."""

import asyncio
import json
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import httpx2
import pytest

from accelbind.ui.command import open_in_browser
from accelbind.ui.live import Live, Shown
from accelbind.ui.server import create_app
from services.admission.mutate import Policy
from simulator.apiserver.standin import ApiServerStandIn

HOST = "127.0.0.1:8080"
GIVEN = {"Host": HOST, "Authorization": "Bearer secret"}


@pytest.fixture
async def client(api: ApiServerStandIn) -> AsyncIterator[httpx2.AsyncClient]:
    live = Live(api.access, "accelbind-system", Policy(), 1.0)
    app = create_app(live, "secret", 8080, lambda: True)
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=app), base_url=f"http://{HOST}"
    ) as made:
        yield made
    await live.client.aclose()


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/", {"Host": HOST}, 200),
        ("/", {"Host": "localhost:8080"}, 200),
        ("/page.js", {"Host": HOST, "Sec-Fetch-Site": "same-origin"}, 200),
        ("/api/stream", GIVEN, 200),
        ("/api/stream", GIVEN | {"Origin": f"http://{HOST}"}, 200),
        ("/", {"Host": "evil.example:8080"}, 421),
        ("/", {"Host": "127.0.0.1"}, 421),
        ("/", {"Host": HOST, "Origin": "https://evil.example"}, 403),
        ("/", {"Host": HOST, "Origin": "null"}, 403),
        ("/", {"Host": HOST, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 200),
        ("/", {"Host": HOST, "Sec-Fetch-Site": "cross-site"}, 403),
        ("/page.js", {"Host": HOST, "Sec-Fetch-Site": "same-site"}, 403),
        (
            "/api/node?name=x",
            GIVEN | {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
            403,
        ),
        ("/api/stream", {"Host": HOST}, 401),
        ("/api/node?name=x", GIVEN | {"Authorization": "Bearer secreT"}, 401),
        ("/api/names?namespace=x", {"Host": HOST, "Authorization": "Bearer "}, 401),
        ("/api/node?name=x", GIVEN, 404),
        ("/api/names?namespace=../x", GIVEN, 422),
        ("/docs", GIVEN, 404),
        ("/page/index.html", GIVEN, 404),
    ],
)
async def test_only_this_server_s_page_is_answered(
    path: str, headers: dict[str, str], status: int, client: httpx2.AsyncClient
) -> None:
    answer = await client.get(path, headers=headers)
    assert answer.status_code == status
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none';")
    assert policy.endswith("frame-ancestors 'none'")
    assert "unsafe" not in policy
    assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "Access-Control-Allow-Origin" not in answer.headers
    assert answer.headers["Cache-Control"] == "no-store"


# Written out, it would have 9 ** 9 values.
_ALIASES = "a: &a [x]\n" + "\n".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]" for before, name in pairwise("abcdefghij")
)


def asked_for(limits: str) -> bytes:
    return json.dumps({"namespace": "team-a", "text": limits}).encode()


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"[]", b"{}", b"x" * 70_000, b"[" * 9_000),
        *map(asked_for, ("[" * 9_000, "1: 1", "a: 2020-01-01", "a: {b: 1}", "\ud800: 1", _ALIASES)),
    ],
)
async def test_a_bad_request_is_an_error_and_no_crash(
    body: bytes, client: httpx2.AsyncClient
) -> None:
    answer = await client.post("/api/explain", headers=GIVEN, content=body)
    assert answer.status_code in {413, 422}


async def test_an_error_of_ours_is_shown_and_the_next_reading_counts(
    api: ApiServerStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        monkeypatch.undo()
        raise KeyError("x")

    live = Live(api.access, "accelbind-system", Policy(), 0.01)
    monkeypatch.setattr("accelbind.ui.live.read_fleet", fail)
    reading = asyncio.create_task(live.run())
    shown = (each async for each in live.watch(lambda: False, 1.0))
    errors = [each.error async for each in _until_read(shown)]
    assert errors[-2:] == ["internal error: KeyError: 'x'", ""]
    reading.cancel()
    await live.client.aclose()


async def _until_read(shown: AsyncIterator[Shown | None]) -> AsyncIterator[Shown]:
    async for each in shown:
        if each is not None:
            yield each
            if each.reading:
                return


def test_the_browser_s_arguments_do_not_have_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    open_in_browser("http://127.0.0.1:1/#token=secret", tmp_path / "a.html")
    assert opened == [(tmp_path / "a.html").as_uri()]
    assert "#token=secret" in (tmp_path / "a.html").read_text()
