"""Prints the help of every command, in a process of its own, whose terminal is always the same."""

from tests.golden import adapter

RULE = "=" * 100


def main() -> None:
    for words in adapter.command_lines():
        print(RULE)  # noqa: T201 - what this is for
        print(" ".join(["accelbind", *words, "--help"]))  # noqa: T201 - the same
        adapter.print_help(words)


if __name__ == "__main__":
    main()
