"""Counts the ideas of the product: `python -m tools.ideas [FOLDER]`, of this checkout by default.

Lines say little of how much a reader has to keep in mind. This counts what must be known: modules,
classes, callbacks, constants, loops, enums, and exceptions to the rules of ARCHITECTURE.md.
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOMS = ("accelbind", "webhook", "plugin", "certs", "services")
GENERATED = ("_pb2.py", "_pb2_grpc.py")


def modules(root: Path) -> Iterator[Path]:
    """Yield the modules of the product, without generated and empty ones."""
    for room in ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            if not path.name.endswith(GENERATED) and path.read_text().strip():
                yield path


def ideas(tree: ast.Module) -> Iterator[str]:
    """Yield the name of each idea in a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield "classes"
            if any("Enum" in ast.unparse(base) for base in node.bases):
                yield "enums"
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name.endswith("_forever"):
                yield "loops"
            arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            for each in arguments:
                if each.annotation is not None and "Callable" in ast.unparse(each.annotation):
                    yield "Callable parameters"
        elif isinstance(node, ast.AnnAssign) and "Final" in ast.unparse(node.annotation):
            yield "constants"


def exceptions(root: Path) -> int:
    """The number of exceptions in ARCHITECTURE.md."""
    section = (root / "ARCHITECTURE.md").read_text().partition("## Exceptions to the rules")[2]
    rows = re.findall(r"^\| .*\|$", section.partition("\n## ")[0], re.MULTILINE)
    return max(0, len(rows) - 1)


def counted(root: Path) -> Counter[str]:
    """The number of each idea in a checkout."""
    counts: Counter[str] = Counter()
    for path in modules(root):
        text = path.read_text()
        counts.update(ideas(ast.parse(text)))
        counts["modules"] += 1
        counts["lines"] += len(text.splitlines())
    counts["exceptions in ARCHITECTURE.md"] = exceptions(root)
    return counts


def main() -> None:
    """Print the counts of a checkout."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1]
    for name, count in sorted(counted(root).items()):
        print(f"{count:7} {name}")


if __name__ == "__main__":
    main()
