"""A temporary folder whose path leaves room for the names of unix sockets."""

import os
import tempfile
from pathlib import Path

LONGEST = 40
"""Characters for the folder; a node's sockets add up to 60, and 107 is the kernel's limit."""


def make_folder() -> Path:
    """Makes it where temporary files belong, or in /tmp where that path is long."""
    usual = tempfile.gettempdir()
    parent = usual if len(os.fsencode(usual)) + len("/accelbind-12345678") <= LONGEST else "/tmp"  # noqa: S108 - mkdtemp makes it ours
    return Path(tempfile.mkdtemp(prefix="accelbind-", dir=parent))
