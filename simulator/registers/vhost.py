"""The transport: a virtio device behind a vhost-user socket, for one kernel in User Mode Linux.

Each message of queue 0 is a request, which a function answers; the other queues are left alone. It
does not know what the requests mean, and never interrupts the kernel, which finds the answers by
polling: `virt-pci.c` (6.1) can't stand an interrupt while it adds a request. The protocol is QEMU's
`docs/interop/vhost-user.rst`, as far as Linux's `arch/um/drivers/virtio_uml.c` speaks it, with
split rings of virtio 1.
"""

import array
import mmap
import os
import selectors
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final, Self

Answer = Callable[[bytes, int], bytes]
"""Answers a request with at most so many bytes; 0 for a request that nobody waits for."""

_HEADER: Final = struct.Struct("<III")
_U64: Final = struct.Struct("<Q")
_REGION: Final = struct.Struct("<4Q")
_ADDRESSES: Final = struct.Struct("<IIQQQ")
_PAIR: Final = struct.Struct("<II")
_DESCRIPTOR: Final = struct.Struct("<QIHH")
_VERSION, _REPLY, _NEED_REPLY = 1, 4, 8
_NEXT, _WRITE = 1, 2
_MAX_FDS: Final = 8

_FEATURES: Final = 1 << 32 | 1 << 30  # virtio 1, protocol features
_PROTOCOL: Final = 1 << 3 | 1 << 5 | 1 << 9  # acknowledgements, requests of ours, configuration


class _Request(IntEnum):
    """Numbers of `enum vhost_user_request`."""

    GET_FEATURES = 1
    SET_MEM_TABLE = 5
    SET_VRING_NUM = 8
    SET_VRING_ADDR = 9
    SET_VRING_BASE = 10
    SET_VRING_KICK = 12
    SET_VRING_CALL = 13
    GET_PROTOCOL_FEATURES = 15
    SET_SLAVE_REQ_FD = 21
    GET_CONFIG = 24


@dataclass(slots=True)
class _Ring:
    """A split ring in the kernel's memory."""

    size: int = 0
    descriptors: int = 0
    used: int = 0
    available: int = 0
    done: int = 0
    """Requests answered."""
    kick: int = -1
    call: int = -1
    """Where the kernel waits for interrupts; only kept open."""

    @property
    def opened(self) -> tuple[int, int]:
        return self.kick, self.call


class VhostUserDevice:
    """Serves one kernel on a socket, in a thread, until it is closed or the kernel ends."""

    def __init__(self, path: Path, answer: Answer) -> None:
        self._answer = answer
        self._regions: list[tuple[int, mmap.mmap]] = []
        self._rings = [_Ring(), _Ring()]
        self._selector = selectors.DefaultSelector()
        self._requests = -1
        self._end, self._ended = os.pipe()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(1)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Cut the connection, which a kernel does not survive (6.1)."""
        os.write(self._ended, b"x")
        self._thread.join()

    def _serve(self) -> None:
        with self._listener, self._selector:
            self._selector.register(self._end, selectors.EVENT_READ)
            self._selector.register(self._listener, selectors.EVENT_READ)
            connection = None
            try:
                while True:
                    for key, _ in self._selector.select():
                        if key.fileobj == self._end:
                            return
                        if key.fileobj is self._listener:
                            connection = self._listener.accept()[0]
                            self._selector.register(connection, selectors.EVENT_READ)
                        elif key.fileobj is connection:
                            self._receive(connection)
                        else:
                            os.eventfd_read(self._rings[0].kick)
                            self._work(self._rings[0])
            except ConnectionError:
                return  # the kernel has ended
            finally:
                opened = [self._requests, *(fd for each in self._rings for fd in each.opened)]
                for fd in opened:
                    if fd >= 0:
                        os.close(fd)
                if connection:
                    connection.close()

    # Messages ------------------------------------------------------------------------------------

    def _receive(self, connection: socket.socket) -> None:
        head, ancillary, _, _ = connection.recvmsg(
            _HEADER.size, socket.CMSG_SPACE(_MAX_FDS * 4), socket.MSG_WAITALL
        )
        if len(head) < _HEADER.size:
            raise ConnectionResetError
        request, flags, size = _HEADER.unpack(head)
        payload = connection.recv(size, socket.MSG_WAITALL) if size else b""
        fds = array.array("i")
        for _, _, data in ancillary:
            fds.frombytes(data)
        reply = self._handle(request, payload, list(fds))
        if reply is None and flags & _NEED_REPLY:
            reply = _U64.pack(0)
        if reply is not None:
            connection.sendall(_HEADER.pack(request, _VERSION | _REPLY, len(reply)) + reply)

    def _handle(self, request: int, payload: bytes, fds: list[int]) -> bytes | None:
        match request:
            case _Request.GET_FEATURES:
                return _U64.pack(_FEATURES)
            case _Request.GET_PROTOCOL_FEATURES:
                return _U64.pack(_PROTOCOL)
            case _Request.GET_CONFIG:
                return payload
            case _Request.SET_MEM_TABLE:
                self._map(payload, fds)
            case _Request.SET_VRING_NUM:
                index, size = _PAIR.unpack(payload)
                self._rings[index].size = size
            case _Request.SET_VRING_ADDR:
                index, _, *places = _ADDRESSES.unpack_from(payload)
                ring = self._rings[index]
                ring.descriptors, ring.used, ring.available = places
            case _Request.SET_VRING_BASE:
                index, base = _PAIR.unpack(payload)
                self._rings[index].done = base
            case _Request.SET_VRING_KICK:
                index = payload[0]
                self._rings[index].kick = fds[0]
                if index == 0:
                    self._selector.register(fds[0], selectors.EVENT_READ)
            case _Request.SET_VRING_CALL:
                self._rings[payload[0]].call = fds[0]
            case _Request.SET_SLAVE_REQ_FD:
                self._requests = fds[0]  # nothing is sent there; closed, the connection is cut
        return None

    def _map(self, payload: bytes, fds: list[int]) -> None:
        self._regions = []
        for number, fd in enumerate(fds):
            start, size, _, offset = _REGION.unpack_from(payload, 8 + number * _REGION.size)
            self._regions.append((start, mmap.mmap(fd, size, offset=offset)))
            os.close(fd)

    # Rings ---------------------------------------------------------------------------------------

    def _place(self, address: int) -> tuple[mmap.mmap, int]:
        for start, memory in self._regions:
            if start <= address < start + len(memory):
                return memory, address - start
        raise LookupError(f"{address:#x} is not in the kernel's memory")

    def _work(self, ring: _Ring) -> None:
        available, base = self._place(ring.available)
        used, used_base = self._place(ring.used)
        # The kernel uses the indices meanwhile: each is read and written in one access, which
        # `struct` does not do (it fills with zeros first).
        index_available = memoryview(available)[base + 2 : base + 4].cast("H")
        index_used = memoryview(used)[used_base + 2 : used_base + 4].cast("H")
        while ring.done & 0xFFFF != index_available[0]:
            slot = ring.done % ring.size
            (head,) = struct.unpack_from("<H", available, base + 4 + 2 * slot)
            request, replies = self._chain(ring, head)
            space = sum(size for _, _, size in replies)
            answer = self._answer(request, space)
            for memory, at, size in replies:
                memory[at : at + size], answer = answer[:size].ljust(size, b"\0"), answer[size:]
            struct.pack_into("<II", used, used_base + 4 + 8 * slot, head, space)
            ring.done += 1
            index_used[0] = ring.done & 0xFFFF

    def _chain(self, ring: _Ring, head: int) -> tuple[bytes, list[tuple[mmap.mmap, int, int]]]:
        request, replies, flags = b"", [], _NEXT
        while flags & _NEXT:
            table, at = self._place(ring.descriptors)
            address, size, flags, following = _DESCRIPTOR.unpack_from(table, at + 16 * head)
            memory, place = self._place(address)
            if flags & _WRITE:
                replies.append((memory, place, size))
            else:
                request += memory[place : place + size]
            head = following
        return request, replies
