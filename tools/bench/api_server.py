"""An API server of prepared AcceleratorFunctions, fast enough to measure its client.

Run as a process of its own: `python -m tools.bench.api_server NUMBER NAMESPACES`; it prints its
port. Lists are paged, watches stay open without events.
"""

import asyncio
import contextlib
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

FUNCTIONS = "/apis/fpga.intel.com/v2/acceleratorfunctions"
INTERFACE = "ce48969398f05f33946d560708be108a"


@contextlib.contextmanager
def serving(number: int, namespaces: int) -> Iterator[str]:
    """Run an API server with that many mappings; its kubeconfig."""
    arguments = [sys.executable, "-m", "tools.bench.api_server", str(number), str(namespaces)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        try:
            port = process.stdout.readline().strip() if process.stdout else ""
            yield json.dumps(
                {
                    "current-context": "bench",
                    "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "b"}}],
                    "clusters": [
                        {"name": "bench", "cluster": {"server": f"http://127.0.0.1:{port}"}}
                    ],
                    "users": [{"name": "b", "user": {"token": "bench"}}],
                }
            )
        finally:
            process.kill()


def mapping(number: int, total: int, namespaces: int) -> dict[str, object]:
    """One object with what kubectl and the API server keep about it, which is most of it."""
    spec = {
        "afuId": hashlib.md5(str(number).encode(), usedforsecurity=False).hexdigest(),
        "interfaceId": INTERFACE,
        "mode": "region",
    }
    name, namespace = f"function-{number:06}", f"team-{number * namespaces // max(1, total):04}"
    kind = {"apiVersion": "fpga.intel.com/v2", "kind": "AcceleratorFunction"}
    applied = {**kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec}
    annotation = "kubectl.kubernetes.io/last-applied-configuration"
    fields: dict[str, object] = {"f:metadata": {"f:annotations": {f"f:{annotation}": {}}}}
    fields["f:spec"] = {f"f:{key}": {} for key in spec}
    manager = {"apiVersion": kind["apiVersion"], "fieldsType": "FieldsV1", "fieldsV1": fields}
    return kind | {
        "metadata": {
            "annotations": {annotation: json.dumps(applied)},
            "creationTimestamp": "2026-11-21T00:14:42Z",
            "generation": 1,
            "managedFields": [manager | {"manager": "kubectl", "operation": "Update"}],
            "name": name,
            "namespace": namespace,
            "resourceVersion": "1000",
            "uid": f"9254a018-b812-4939-a841-{number:012d}",
        },
        "spec": spec,
    }


async def serve(number: int, namespaces: int) -> None:
    """Serve until killed; prints the port."""
    items = [json.dumps(mapping(each, number, namespaces)).encode() for each in range(number)]

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                target = urlsplit(head.split(b" ", 2)[1].decode())
                query = {key: values[0] for key, values in parse_qs(target.query).items()}
                if "watch" in query:
                    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                    await reader.read()
                else:
                    body = _page(items if target.path == FUNCTIONS else [], query)
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
                    writer.write(body)
                    await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            writer.transport.abort()

    listening = await asyncio.start_server(converse, "127.0.0.1", 0)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await listening.serve_forever()


def _page(items: list[bytes], query: dict[str, str]) -> bytes:
    start = int(query.get("continue", 0))
    end = min(len(items), start + int(query["limit"]))
    following = str(end) if end < len(items) else ""
    metadata = json.dumps({"resourceVersion": "1000", "continue": following}).encode()
    return b'{"items":[%s],"metadata":%s}' % (b",".join(items[start:end]), metadata)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2])))
