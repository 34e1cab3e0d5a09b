"""Waits until a webhook knows as many mappings as the API server has.

    python -m tests.docs.known PORTS-FILE COUNT

On a machine that runs other tests the webhook may be told of them a second after kubectl is.
"""

import json
import re
import sys
import urllib.request
from pathlib import Path

from tests.support import eventually


def known(port: int) -> float:
    """How many it knows."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    counts = re.findall(r'^accelbind_mappings\{kind="\w+"\} (\S+)$', text, re.MULTILINE)
    return sum(map(float, counts))


def main(ports: Path, count: int) -> None:
    """Waits, if there is a webhook."""
    if ports.exists():
        port = json.loads(ports.read_text())["metrics"]
        eventually(lambda: known(port) == count, timeout=60, what=f"{count} mappings known")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
