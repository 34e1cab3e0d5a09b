"""Something that is wrong, in one shape for all subjects."""

import msgspec


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something wrong, for machines and for people."""

    code: str = msgspec.field(name="reason")
    """A stable kebab-case code, fit for a metric label (`afu-id-empty`)."""
    text: str = msgspec.field(name="message")
    """One sentence for people, which says what is wrong, and where."""
    subject: str = ""
    """The object or container that has it; empty if its holder, such as a device, says so."""
    namespace: str = ""
    """Of the subject, if it has one."""
