"""The health check of the images: asks a process's plain port whether it serves.

    python -I health.py 9101

The port is `ACCELBIND_METRICS_PORT` where that is set. It uses the standard library alone, since it
runs every few seconds in a process of its own.
"""

import http.client
import os
import sys

SECONDS = 4.0


def healthy(port: int) -> bool:
    """Whether the process answers its readiness probe."""
    connection = http.client.HTTPConnection("localhost", port, timeout=SECONDS)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        if answer.status == http.client.OK:
            return True
        sys.stderr.write(f"/readyz: {answer.status} {answer.read(500).decode(errors='replace')}\n")
    except (OSError, http.client.HTTPException) as problem:
        sys.stderr.write(f"port {port}: {problem}\n")
    finally:
        connection.close()
    return False


if __name__ == "__main__":
    sys.exit(0 if healthy(int(os.environ.get("ACCELBIND_METRICS_PORT") or sys.argv[1])) else 1)
