import ssl

from simulator.apiserver.tls import make_pair


def test_the_certificate_made_up_satisfies_strict_clients() -> None:
    pair = make_pair(["localhost", "127.0.0.1"])
    client = ssl.create_default_context(cadata=pair.authority.decode())
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    theirs = pair.context().wrap_bio(to_server, to_client, server_side=True)
    waiting = {ours, theirs}
    while waiting:
        for side in waiting.copy():
            try:
                side.do_handshake()
                waiting.discard(side)
            except ssl.SSLWantReadError:
                pass
    assert ours.version() == "TLSv1.3"
