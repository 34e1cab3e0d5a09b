import asyncio
from pathlib import Path

import grpc
import grpc.aio
import pytest

from services.kubelet import deviceplugin_pb2 as pb
from services.kubelet import deviceplugin_pb2_grpc as rpc
from services.kubelet import sockets
from services.process.errors import KubeletError


def test_a_path_of_107_bytes_is_the_longest_that_is_accepted() -> None:
    assert sockets.address(Path("/" + "d" * 99 + "/a.sock")).startswith("unix:/ddd")
    for path in ("/" + "d" * 100 + "/a.sock", "/" + "é" * 54):
        with pytest.raises(KubeletError, match=r"10\d bytes are too long"):
            sockets.address(Path(path))


class Kubelet(rpc.RegistrationServicer):
    async def Register(  # noqa: N802 - the protocol's name
        self,
        request: pb.RegisterRequest,
        context: grpc.aio.ServicerContext[pb.RegisterRequest, pb.Empty],
    ) -> pb.Empty:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{request.endpoint} will not do")


async def test_a_call_reaches_a_socket_whose_path_needs_quoting(short_dir: Path) -> None:
    folder = short_dir / "a %é#?"
    folder.mkdir()
    server, request = grpc.aio.server(), pb.RegisterRequest(endpoint="e")
    rpc.add_RegistrationServicer_to_server(Kubelet(), server)
    sockets.listen(server, folder / "k.sock")
    await server.start()
    try:
        async with sockets.dial(folder / "k.sock") as dialled:
            with pytest.raises(grpc.aio.AioRpcError, match="e will not do"):
                await rpc.RegistrationStub(dialled).Register(request, timeout=60)
    finally:
        await server.stop(0)


async def test_a_socket_that_can_not_be_made_is_named(short_dir: Path) -> None:
    with pytest.raises(KubeletError, match=r"can't make a socket in .*/gone: is it a folder"):
        sockets.listen(grpc.aio.server(), short_dir / "gone" / "k.sock")


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


async def test_the_authority_is_one_that_servers_written_in_go_take(short_dir: Path) -> None:
    heard: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))  # an empty SETTINGS frame
        # gRPC for Python sends it as it is, not in Huffman's code
        heard.set_result(await reader.readuntil(b"localhost"))
        writer.close()

    async with (
        await asyncio.start_unix_server(listen, short_dir / "k.sock"),
        sockets.dial(short_dir / "k.sock") as dialled,
    ):
        with pytest.raises(grpc.aio.AioRpcError):
            await rpc.RegistrationStub(dialled).Register(pb.RegisterRequest(), timeout=60)
    assert b"%2F" not in await heard
