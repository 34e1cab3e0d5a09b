"""Wait until a webhook knows as many mappings as the API server has.

    python -m tests.docs.known PORTS-FILE COUNT

The webhook may hear of a mapping later than kubectl on a busy machine.
"""

import json
import re
import sys
import urllib.request
from pathlib import Path

from tests.support import eventually


def known(port: int) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    counts = re.findall(r'^accelbind_mappings\{kind="\w+"\} (\S+)$', text, re.MULTILINE)
    return sum(map(float, counts))


if __name__ == "__main__":
    ports, count = Path(sys.argv[1]), int(sys.argv[2])
    if ports.exists():
        port = json.loads(ports.read_text())["metrics"]
        eventually(lambda: known(port) == count, what=f"{count} mappings known")
