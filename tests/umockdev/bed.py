"""A umockdev test bed with FPGA cards in it, driven over stdin: a process of its own.

It runs under the system's Python, which has umockdev's bindings, and `umockdev-wrapper`. A line of
JSON on stdin asks for something, a line on stdout answers it; the first line on stdout says where
the bed is. Cards are those of `simulator.cards`, laid out in the bed. Behind each of their nodes
is a driver that takes ioctls as the real ones do, keeps what it took, and reconfigures: a
bitstream's first 16 bytes are the id of the function that is in it.
"""

import errno
import hashlib
import json
import shutil
import struct
import sys
from pathlib import Path
from typing import Any

import gi

gi.require_version("UMockdev", "1.0")

from gi.repository import GLib, UMockdev  # noqa: E402 - versions come first

from simulator.cards import CardSpec, Rack  # noqa: E402 - the same

PLUG = {"opae": 0xB500, "dfl": 0xB600}
PORT_PR = {"opae": 32, "dfl": 24}
MOVES = {0xB581: "release", 0xB582: "assign", 0x4004B681: "release", 0x4004B682: "assign"}


class Node(UMockdev.IoctlBase):  # type: ignore[misc] # has no types
    """The driver behind one device node."""

    def __init__(self, bed: "Bed", driver: str, address: str, name: str, port: int | None) -> None:
        super().__init__()
        self.bed, self.driver, self.address, self.name, self.port = bed, driver, address, name, port

    def do_handle_ioctl(self, client: Any) -> bool:
        """Called for each ioctl on the node, in the loop."""
        request = client.get_request()
        call: dict[str, Any] = {"node": self.name, "request": request}
        self.bed.calls.append(call)
        self._take(client, request, call)
        return True

    def _take(self, client: Any, request: int, call: dict[str, Any]) -> None:
        base = PLUG[self.driver]
        if request == base + 0x40 and self.port is not None:
            client.complete(0, 0)
        elif request == base + 0x80 and self.port is None:
            self._program(client, call)
        elif request in MOVES and self.port is None:
            self._move(client, call)
        else:
            client.complete(-1, errno.ENOTTY)

    def _move(self, client: Any, call: dict[str, Any]) -> None:
        form = struct.Struct("<3I" if self.driver == "opae" else "<I")
        call["fields"] = form.unpack(bytes(client.get_arg().resolve(0, form.size).retrieve()))
        client.complete(0, 0)

    def _program(self, client: Any, call: dict[str, Any]) -> None:
        size = PORT_PR[self.driver]
        argument = client.get_arg().resolve(0, size)
        fields = struct.unpack("<4IQ" + ("Q" if size == 32 else ""), bytes(argument.retrieve()))
        length = fields[3]
        content = bytes(argument.resolve(16, length).retrieve())
        call["fields"] = [*fields[:4], 0, *fields[5:]]
        call["sha256"] = hashlib.sha256(content).hexdigest()
        call["length"] = len(content)
        if fields[0] != size or fields[1]:
            client.complete(-1, errno.EINVAL)
            return
        self.bed.put(self.address, fields[2], content[:16].hex())
        client.complete(0, 0)


class Bed:
    """The bed, its cards, and what people asked of it."""

    def __init__(self) -> None:
        self.testbed = UMockdev.Testbed.new()
        self.root = Path(self.testbed.get_root_dir())
        self.rack = Rack(self.root)
        self.calls: list[dict[str, Any]] = []
        self._nodes: list[Node] = []
        (self.root / "dev/.node").mkdir(parents=True)

    # Cards ---------------------------------------------------------------------------------------

    def add(self, **spec: Any) -> dict[str, Any]:
        spec["afu_ids"] = tuple(spec.get("afu_ids", ())) or CardSpec().afu_ids
        address = self.rack.add_card(CardSpec(**spec))
        function = self.rack.functions[address]
        fme, ports = str(function.fme_name), list(map(function.port_name, function.ports))
        for number, name in enumerate([fme, *ports]):
            self._node(function.driver, address, name, number - 1 if number else None)
        return {"address": address, "fme": fme, "ports": ports, "entry": function.entry_folder}

    def _node(self, driver: str, address: str, name: str, port: int | None) -> None:
        number = f"{245 if port is None else 244}:{name.rpartition('.')[2]}"
        (self.root / "dev/.node" / name).symlink_to(number)
        node = Node(self, driver, address, name, port)
        self._nodes.append(node)
        self.testbed.attach_ioctl(f"/dev/{name}", node)

    def split(self, address: str, port: int) -> str:
        """Split a port of a card off to a virtual function."""
        return self.rack.move_to_vf(address, port)

    # Reconfiguration -----------------------------------------------------------------------------

    def put(self, address: str, port: int, afu_id: str) -> None:
        """Put a function into a port, which a virtual function may have."""
        functions = self.rack.functions
        for each in (address, *functions[address].virtual):
            for place, found in enumerate(functions[each].ports):
                if found.number == port:
                    self.rack.set_afu(each, afu_id, place)

    # Being asked ---------------------------------------------------------------------------------

    def ask(self, request: dict[str, Any]) -> Any:
        what = request.pop("do")
        if what == "calls":
            taken, self.calls = self.calls, []
            return taken
        return getattr(self, what)(**request)


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def main() -> None:
    bed, loop = Bed(), GLib.MainLoop()

    def said(source: Any, _: Any) -> bool:
        line = source.readline()
        if not line:
            loop.quit()
            return False
        try:
            answer = {"answer": bed.ask(json.loads(line))}
        except Exception as error:  # noqa: BLE001 - the test is told
            answer = {"error": f"{type(error).__name__}: {error}"}
        _say(answer)
        return True

    GLib.io_add_watch(sys.stdin, GLib.PRIORITY_DEFAULT, GLib.IO_IN | GLib.IO_HUP, said)
    _say({"root": str(bed.root)})
    try:
        loop.run()
    finally:
        shutil.rmtree(bed.root, ignore_errors=True)


if __name__ == "__main__":
    main()
