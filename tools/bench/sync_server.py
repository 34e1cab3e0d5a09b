"""An API server of prepared AcceleratorFunctions, fast enough to measure who reads from it.

Run as a process of its own: `python -m tools.bench.sync_server NUMBER NAMESPACES`; it prints its
port. Lists are paged, watches are open until told otherwise. `GET /changes?rate=R&number=N` has N
objects change, R a second (0: as fast as they are read), and answers with the last of them. `GET
/expire` ends the watches as too old, and answers how many there were; `GET /watches` tells how many
there are, `GET /lists` how many lists of all functions were asked for.
"""

import asyncio
import hashlib
import json
import sys
from itertools import count
from urllib.parse import parse_qs, urlsplit

FUNCTIONS = "/apis/fpga.intel.com/v2/acceleratorfunctions"
INTERFACE = "ce48969398f05f33946d560708be108a"
BATCH_SECONDS = 0.01
FLOOD_BATCH = 200

APPLIED = (
    '{"apiVersion":"fpga.intel.com/v2","kind":"AcceleratorFunction","metadata":{"annotations":{},'
    '"name":"%(name)s","namespace":"%(namespace)s"},"spec":{"afuId":"%(afu)s",'
    '"interfaceId":"%(interface)s","mode":"region"}}\n'
)
FIELDS = (
    '{"f:metadata":{"f:annotations":{".":{},"f:kubectl.kubernetes.io/last-applied-configuration":'
    '{}}},"f:spec":{".":{},"f:afuId":{},"f:interfaceId":{},"f:mode":{}}}'
)
OBJECT = (
    '{"apiVersion":"fpga.intel.com/v2","kind":"AcceleratorFunction","metadata":{"annotations":'
    f'{{"kubectl.kubernetes.io/last-applied-configuration":{json.dumps(APPLIED)}}},'
    '"creationTimestamp":"2026-11-21T00:14:42Z","generation":1,"managedFields":[{"apiVersion":'
    f'"fpga.intel.com/v2","fieldsType":"FieldsV1","fieldsV1":{FIELDS},'
    '"manager":"kubectl-client-side-apply","operation":"Update","time":"2026-11-21T00:14:42Z"}],'
    '"name":"%(name)s","namespace":"%(namespace)s","resourceVersion":"%(version)d",'
    '"uid":"9254a018-b812-4939-a841-%(number)012d"},"spec":{"afuId":"%(afu)s",'
    '"interfaceId":"%(interface)s","mode":"region"}}'
)
"""As kubectl makes them: most of an object is what the API server keeps about it."""
EXPIRED = (
    b'{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",'
    b'"message":"too old resource version","reason":"Expired","code":410}}\n'
)


class SyncServer:
    """Serves a number of functions, spread over namespaces."""

    def __init__(self, number: int, namespaces: int) -> None:
        self._number = number
        self._namespaces = namespaces
        self._versions = count(1000)
        self._watchers: list[asyncio.StreamWriter] = []
        self._lists = 0

    def object(self, number: int, version: int) -> bytes:
        """One object; its AFU id is another one in each version."""
        digest = hashlib.md5(f"{number} {version}".encode(), usedforsecurity=False).hexdigest()
        values = {
            "name": f"function-{number:06}",
            "namespace": f"team-{number * self._namespaces // max(1, self._number):04}",
            "afu": digest,
            "interface": INTERFACE,
            "version": version,
            "number": number,
        }
        return (OBJECT % values).encode()

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers the requests of one connection."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                target = urlsplit(head.split(b" ", 2)[1].decode())
                query = {key: values[0] for key, values in parse_qs(target.query).items()}
                if target.path == "/changes":
                    last = await self._change(int(query["number"]), float(query["rate"]))
                    await _answer(writer, last)
                elif target.path == "/expire":
                    await _answer(writer, b"%d" % await self._expire())
                elif target.path == "/watches":
                    await _answer(writer, b"%d" % len(self._watchers))
                elif target.path == "/lists":
                    await _answer(writer, b"%d" % self._lists)
                elif "watch" in query:
                    await self._watch(target.path, writer)
                    await reader.read()
                else:
                    await _answer(writer, self._page(target.path, query))
        except (OSError, asyncio.IncompleteReadError):
            writer.transport.abort()

    def _page(self, path: str, query: dict[str, str]) -> bytes:
        start = int(query.get("continue", 0))
        number = self._number if path == FUNCTIONS else 0
        self._lists += path == FUNCTIONS and start == 0
        end = min(number, start + int(query["limit"]))
        following = str(end) if end < number else ""
        metadata = json.dumps({"resourceVersion": "1000", "continue": following}).encode()
        items = b",".join(self.object(each, 1) for each in range(start, end))
        return b'{"items":[%s],"metadata":%s}' % (items, metadata)

    async def _watch(self, path: str, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await writer.drain()
        if path == FUNCTIONS:
            self._watchers.append(writer)

    async def _expire(self) -> int:
        """Ends the watches; returns how many there were."""
        ended, self._watchers = self._watchers, []
        for watcher in ended:
            watcher.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(EXPIRED), EXPIRED))
            await watcher.drain()
        return len(ended)

    async def _change(self, number: int, rate: float) -> bytes:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        batch = max(1, round(rate * BATCH_SECONDS)) if rate else FLOOD_BATCH
        last = b""
        for sent in range(0, number, batch):
            # A prime far from the number of objects: changes come from all over.
            changed = [
                each * 7919 % self._number for each in range(sent, min(number, sent + batch))
            ]
            objects = [self.object(each, next(self._versions)) for each in changed]
            last = objects[-1]
            lines = b"".join(b'{"type":"MODIFIED","object":%s}\n' % each for each in objects)
            for watcher in self._watchers:
                watcher.write(b"%x\r\n%s\r\n" % (len(lines), lines))
                await watcher.drain()
            if rate:
                await asyncio.sleep(max(0.0, begun + sent / rate - loop.time()))
        return last


async def _answer(writer: asyncio.StreamWriter, body: bytes) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
    writer.write(body)
    await writer.drain()


async def serve(number: int, namespaces: int) -> None:
    """Serves until killed; prints the port."""
    server = SyncServer(number, namespaces)
    listening = await asyncio.start_server(server.converse, "127.0.0.1", 0)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await listening.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2])))
