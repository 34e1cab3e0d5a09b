import json
import socket
from pathlib import Path

import pytest

from services.process.errors import ExternalFailure
from services.process.listening import ALL_ADDRESSES, listen, write_ports


def port_of(listener: socket.socket) -> int:
    port: int = listener.getsockname()[1]
    return port


def test_all_addresses_are_those_of_both_families_and_answers_go_without_delay() -> None:
    with listen(ALL_ADDRESSES, 0) as listener:
        for host in ("127.0.0.1", "::1") if socket.has_dualstack_ipv6() else ("127.0.0.1",):
            with socket.create_connection((host, port_of(listener)), timeout=60):
                accepted, _ = listener.accept()
                with accepted:
                    assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize("error", [OSError(97, "no IPv6"), ValueError("no dual stack")])
def test_where_there_is_no_ipv6_all_addresses_are_ipv4(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    create = socket.create_server

    def without_ipv6(
        address: tuple[str, int], *, family: int, backlog: int, dualstack_ipv6: bool = False
    ) -> socket.socket:
        if family == socket.AF_INET6:
            assert dualstack_ipv6
            raise error
        return create(address, family=family, backlog=backlog)

    monkeypatch.setattr(socket, "create_server", without_ipv6)
    with listen(ALL_ADDRESSES, 0) as listener:
        assert listener.family == socket.AF_INET


def test_a_port_that_is_taken_and_a_host_that_is_not_ours_are_told() -> None:
    with listen(ALL_ADDRESSES, 0) as listener:
        port = port_of(listener)
        with pytest.raises(
            ExternalFailure, match=rf"^can't listen on .*{port}: Address already in use$"
        ):
            listen(ALL_ADDRESSES, port)
    with pytest.raises(ExternalFailure, match=r"^can't listen on no\.such\.host\.invalid: "):
        listen("no.such.host.invalid", 0)


def test_ports_are_written_for_everybody(tmp_path: Path) -> None:
    path = tmp_path / "ports.json"
    write_ports(path, {"metrics": 2, "admission": 1})
    assert json.loads(path.read_text()) == {"admission": 1, "metrics": 2}
    assert path.stat().st_mode & 0o777 == 0o644
