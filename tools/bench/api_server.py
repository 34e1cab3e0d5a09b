"""An API server with AcceleratorFunctions, in a process of its own.

`python -m tools.bench.api_server FOLDER NUMBER NAMESPACES` runs the API server stand-in and writes
`api.sock` and `ports.json` into the folder, which must exist.
"""

import asyncio
import contextlib
import hashlib
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import structlog

from services.process.listening import write_ports
from services.process.signals import stop_signals
from simulator.apiserver.standin import ApiServerStandIn
from simulator.cards import A10_INTERFACE
from tools.bench.serving import END_SECONDS, ports_of


@contextlib.contextmanager
def serving(folder: Path, number: int, namespaces: int) -> Iterator[str]:
    """Run an API server with this number of mappings; yields its address."""
    folder.mkdir()
    arguments = [str(folder), str(number), str(namespaces)]
    process = subprocess.Popen([sys.executable, "-m", "tools.bench.api_server", *arguments])
    try:
        ports_of(process, folder)
        yield f"unix:{folder}/api.sock"
    finally:
        process.terminate()
        process.wait(END_SECONDS)


def mapping(number: int, total: int, namespaces: int) -> dict[str, object]:
    """One object, with the metadata that kubectl and the API server add."""
    spec = {
        "afuId": hashlib.md5(str(number).encode(), usedforsecurity=False).hexdigest(),
        "interfaceId": A10_INTERFACE,
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
            "managedFields": [manager | {"manager": "kubectl", "operation": "Update"}],
            "name": name,
            "namespace": namespace,
        },
        "spec": spec,
    }


async def serve(folder: Path, number: int, namespaces: int) -> None:
    with stop_signals() as stop:
        async with ApiServerStandIn(folder) as api:
            for each in range(number):
                api.put(mapping(each, number, namespaces))
            write_ports(folder / "ports.json", {"https": api.port})
            await stop.wait()


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
