"""What happens in TLS handshakes, which the event loop tells nobody about.

A server's protocol hears of a connection only once its handshake is done. Who ends has to know of
those that are under way, and a client whose certificate is refused shall be found in the log. The
hook is `SSLContext.sslobject_class` (docs.python.org/3/library/ssl.html): the class of the objects
that do the handshakes.
"""

import ssl
import weakref
from collections.abc import Callable
from typing import Self, TypeAlias

Refused: TypeAlias = Callable[[str], None]
"""Is told why a client's certificate was refused."""


class Handshakes:
    """Watches the handshakes of a server's TLS context.

    Args:
        context: The server's.

    Attributes:
        refused: Called for each client whose certificate doesn't hold.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self.refused: Refused = lambda _why: None
        self._under_way: weakref.WeakSet[ssl.SSLObject] = weakref.WeakSet()
        context.sslobject_class = _watched_by(self)

    @property
    def under_way(self) -> int:
        """How many clients have connected and not finished their handshake."""
        return len(self._under_way)

    def begun(self, connection: ssl.SSLObject) -> None:
        """A client has connected; one that goes away is forgotten with its connection."""
        self._under_way.add(connection)

    def ended(self, connection: ssl.SSLObject) -> None:
        """A handshake is done, or has failed."""
        self._under_way.discard(connection)


def _watched_by(handshakes: Handshakes) -> type[ssl.SSLObject]:
    class Watched(ssl.SSLObject):
        """One connection."""

        def __new__(cls) -> Self:
            made = super().__new__(cls)
            handshakes.begun(made)
            return made

        def do_handshake(self) -> None:
            """Goes on with the handshake; called until it is done."""
            try:
                super().do_handshake()
            except ssl.SSLWantReadError:
                raise
            except ssl.SSLCertVerificationError as error:
                handshakes.ended(self)
                handshakes.refused(error.verify_message)
                raise
            except OSError:
                handshakes.ended(self)
                raise
            handshakes.ended(self)

    return Watched
