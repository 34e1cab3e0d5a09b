import socket
from contextlib import closing
from pathlib import Path

import pytest

from plugin.sockets import SocketNames, SweptSockets, remove_stale_sockets
from services.process.errors import KubeletError

OURS = "accelbind-0123abcd-7.sock"


def served(path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    return server


def left_behind(path: Path) -> None:
    served(path).close()


def test_no_name_is_given_out_twice(short_dir: Path) -> None:
    one, other = SocketNames(short_dir), SocketNames(short_dir)
    names = [each.next() for _ in range(50) for each in (one, other)]
    assert len(set(names)) == 100
    assert {name.parent for name in names} == {short_dir}


def test_names_fit_below_the_usual_folder_with_room_to_spare() -> None:
    folder = Path("/var/lib/kubelet/device-plugins")
    assert len(str(SocketNames(folder).next())) < 70


def test_a_folder_too_long_for_sockets_is_an_error_that_says_so() -> None:
    with pytest.raises(KubeletError, match="too long for a unix socket"):
        SocketNames(Path("/" + "d" * 90)).next()


def test_sockets_that_a_predecessor_left_are_removed(short_dir: Path) -> None:
    left_behind(short_dir / OURS)
    assert remove_stale_sockets(short_dir) == SweptSockets(removed=(OURS,))
    assert list(short_dir.iterdir()) == []


def test_names_given_out_are_those_that_a_sweep_knows(short_dir: Path) -> None:
    path = SocketNames(short_dir).next()
    left_behind(path)
    assert remove_stale_sockets(short_dir).removed == (path.name,)


def test_a_socket_that_somebody_serves_stays(short_dir: Path) -> None:
    with closing(served(short_dir / OURS)):
        assert remove_stale_sockets(short_dir) == SweptSockets(alive=(OURS,))
        assert (short_dir / OURS).exists()


def test_a_socket_whose_server_is_too_busy_to_answer_stays(short_dir: Path) -> None:
    with closing(served(short_dir / OURS)) as server, closing(socket.socket(socket.AF_UNIX)) as one:
        server.listen(0)
        one.connect(str(short_dir / OURS))
        assert remove_stale_sockets(short_dir) == SweptSockets(alive=(OURS,))


def test_what_is_not_ours_stays(short_dir: Path) -> None:
    others = ["kubelet.sock", "nvidia.sock", "accelbind-x-1.sock", "accelbind-0123abcd-7.sock.bak"]
    for name in others:
        left_behind(short_dir / name)
    (short_dir / "accelbind-0123abcd-8.sock").write_text("no socket")
    assert remove_stale_sockets(short_dir) == SweptSockets()
    assert len(list(short_dir.iterdir())) == 5


def test_a_folder_that_is_not_there_has_nothing_to_sweep(short_dir: Path) -> None:
    assert remove_stale_sockets(short_dir / "gone") == SweptSockets()
