"""`accelbind webhook`: the admission webhook."""

import typer

from accelbind.flags import settings_command
from webhook.settings import WebhookSettings


def serve(settings: WebhookSettings, _context: typer.Context) -> None:
    """Serve the admission webhook over TLS.

    Replaces the logical names in pods by what their namespace's mappings say
    (POST /mutate), and checks pods after all mutation (POST /validate). Each
    option may also be a variable ACCELBIND_<OPTION>; the option wins. A TIME
    is a number with ms, s, m, h or d behind it; a bare number counts seconds.

    [bold]Examples[/bold]
      accelbind certs issue --dir . --name localhost
      accelbind webhook --tls-cert tls.crt --tls-key tls.key --mappings maps
      accelbind webhook --tls-cert t.crt --tls-key t.key --api-server unix:/tmp/api
      accelbind webhook --tls-cert tls.crt --tls-key tls.key --print-config
    """
    import uvloop  # noqa: PLC0415 - only when it runs

    from webhook.process import run  # noqa: PLC0415 - the same

    uvloop.run(run(settings))


webhook = settings_command(WebhookSettings, serve)
