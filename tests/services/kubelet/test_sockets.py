import asyncio
import os
from pathlib import Path
from typing import cast

import grpc
import grpc.aio
import pytest

from services.kubelet import deviceplugin_pb2 as pb
from services.kubelet import deviceplugin_pb2_grpc as rpc
from services.kubelet import sockets
from services.process.errors import KubeletError


def path_of_length(length: int) -> Path:
    return Path("/" + "d" * (length - 8) + "/a.sock")


def test_a_path_of_107_bytes_is_the_longest_that_is_accepted() -> None:
    assert sockets.address(path_of_length(107)).startswith("unix:/ddd")
    with pytest.raises(KubeletError, match="108 bytes are too long"):
        sockets.address(path_of_length(108))


def test_the_length_of_a_path_counts_bytes_and_not_characters() -> None:
    with pytest.raises(KubeletError, match="bytes are too long"):
        sockets.address(Path("/" + "é" * 60))


def test_a_relative_path_is_refused() -> None:
    with pytest.raises(KubeletError, match="must be absolute"):
        sockets.address(Path("a.sock"))


class Kubelet(rpc.RegistrationServicer):
    async def Register(  # noqa: N802 - the protocol's name
        self,
        request: pb.RegisterRequest,
        context: grpc.aio.ServicerContext[pb.RegisterRequest, pb.Empty],
    ) -> pb.Empty:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{request.endpoint} will not do")


async def call(folder: Path) -> grpc.aio.AioRpcError:
    server = grpc.aio.server()
    rpc.add_RegistrationServicer_to_server(Kubelet(), server)
    sockets.listen(server, folder / "k.sock")
    await server.start()
    try:
        async with sockets.dial(folder / "k.sock") as dialled:
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await rpc.RegistrationStub(dialled).Register(
                    pb.RegisterRequest(endpoint="e"), timeout=60
                )
    finally:
        await server.stop(0)
    return raised.value


@pytest.mark.anyio
async def test_a_call_reaches_a_socket_whose_path_needs_quoting(short_dir: Path) -> None:
    folder = short_dir / "a %é#?"
    folder.mkdir()
    error = await call(folder)
    assert (error.code(), error.details()) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "e will not do",
    )


@pytest.mark.anyio
async def test_a_folder_that_is_not_there_is_named(short_dir: Path) -> None:
    server = grpc.aio.server()
    with pytest.raises(KubeletError, match="gone: that is not a folder"):
        sockets.listen(server, short_dir / "gone" / "k.sock")


@pytest.mark.anyio
async def test_a_socket_that_grpc_does_not_make_is_named(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing:
        def add_insecure_port(self, _address: str) -> int:
            return 0

    server = cast("grpc.aio.Server", Refusing())
    with pytest.raises(KubeletError, match=r"can't make a socket in .*: gRPC refused it"):
        sockets.listen(server, short_dir / "k.sock")
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    with pytest.raises(KubeletError, match="may not write there"):
        sockets.listen(server, short_dir / "k.sock")


async def first_headers(folder: Path) -> bytes:
    """What our channel sends first, up to the end of its first HEADERS frame."""
    heard: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent = await reader.readexactly(24)  # the preface
        await asyncio.sleep(0.3)  # as on a busy machine
        writer.write(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))  # an empty SETTINGS frame
        kind = -1
        while kind != 1:  # HEADERS
            head = await reader.readexactly(9)
            kind = head[3]
            sent = await reader.readexactly(int.from_bytes(head[:3], "big"))
        heard.set_result(sent)
        writer.close()

    server = await asyncio.start_unix_server(answer, folder / "k.sock")
    async with server, sockets.dial(folder / "k.sock") as dialled:
        stub = rpc.RegistrationStub(dialled)
        with pytest.raises(grpc.aio.AioRpcError):
            await stub.Register(pb.RegisterRequest(), timeout=60)
        return await asyncio.wait_for(heard, 60)


@pytest.mark.anyio
async def test_a_server_that_is_stopping_and_stays_is_not_asked_again_and_again(
    short_dir: Path,
) -> None:
    opened: list[asyncio.StreamWriter] = []

    def go_away(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(writer)
        writer.write(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))  # an empty SETTINGS frame
        writer.write(bytes([0, 0, 8, 7, 0, 0, 0, 0, 0]) + bytes(8))  # GOAWAY: no stream was heard

    async with await asyncio.start_unix_server(go_away, short_dir / "k.sock"):
        for _ in range(8):
            async with sockets.dial(short_dir / "k.sock") as dialled:
                with pytest.raises(grpc.aio.AioRpcError) as raised:
                    await rpc.RegistrationStub(dialled).Register(pb.RegisterRequest(), timeout=30)
                assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
        for writer in opened:  # since Python 3.12 the server's end waits for them
            writer.close()


@pytest.mark.anyio
async def test_the_authority_is_one_that_servers_written_in_go_take(short_dir: Path) -> None:
    headers = await first_headers(short_dir)
    assert b"localhost" in headers  # gRPC for Python sends it as it is, not in Huffman's code
    assert b"%2F" not in headers
