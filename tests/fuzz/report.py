"""What came out of a run, and how to have an input again."""

from collections import Counter
from dataclasses import dataclass, field

MAX_FAILURES = 10


@dataclass
class Report:
    """What came out of a run.

    Attributes:
        command: Shows one input: `python -m <command> SEED NUMBER`.
        slowest: Seconds of the slowest input.
        memory_mib: How much memory was used, as each fuzzer says.
    """

    command: str
    seed: int
    inputs: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    slowest: float = 0.0
    seconds: float = 0.0
    memory_mib: float = 0.0

    def fail(self, number: int, error: Exception) -> None:
        """Keep what was wrong with an input."""
        self.failures.append(f"python -m {self.command} {self.seed} {number}: {error!r:.500}")

    @property
    def is_enough(self) -> bool:
        """Whether there are so many failures that the run may end."""
        return len(self.failures) >= MAX_FAILURES

    def __str__(self) -> str:
        outcomes = ", ".join(f"{count} {name}" for name, count in self.outcomes.items())
        summary = (
            f"seed {self.seed}: {self.inputs} inputs in {self.seconds:.0f} s ({outcomes}),"
            f" slowest {self.slowest * 1e3:.0f} ms, {self.memory_mib:.1f} MiB of memory,"
            f" {len(self.failures)} failures"
        )
        return "\n".join([summary, *self.failures])
