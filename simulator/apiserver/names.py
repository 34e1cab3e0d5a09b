"""The name rules of Kubernetes, with the error texts of a real API server.

Texts and rules: `k8s.io/apimachinery/pkg/util/validation`.
"""

import re

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_RE = re.compile(_LABEL)
_SUBDOMAIN_RE = re.compile(_SUBDOMAIN)
_QUALIFIED_RE = re.compile(_QUALIFIED)


def subdomain_problem(name: str) -> str:
    """Why a text is not an RFC 1123 subdomain (the name of most objects); empty if it is one."""
    if len(name) > 253:
        return "must be no more than 253 bytes"
    if _SUBDOMAIN_RE.fullmatch(name):
        return ""
    return (
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-'"
        " or '.', and must start and end with an alphanumeric character (e.g. 'example.com',"
        f" regex used for validation is '{_SUBDOMAIN}')"
    )


def label_problem(name: str) -> str:
    """Why a text is not an RFC 1123 label (containers, namespaces); empty if it is one."""
    if len(name) > 63:
        return "must be no more than 63 bytes"
    if _LABEL_RE.fullmatch(name):
        return ""
    return (
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-',"
        " and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc',"
        f" regex used for validation is '{_LABEL}')"
    )


def qualified_problem(name: str) -> str:
    """Why a text is not a qualified name (`domain/name`, of resources); empty if it is."""
    prefix, slash, part = name.rpartition("/")
    if slash and (not prefix or (problem := subdomain_problem(prefix))):
        return f"prefix part {problem if prefix else 'must be non-empty'}"
    if not part:
        return "name part must be non-empty"
    if len(part) > 63:
        return "name part must be no more than 63 bytes"
    if _QUALIFIED_RE.fullmatch(part):
        return ""
    return (
        "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and"
        " end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex"
        f" used for validation is '{_QUALIFIED}')"
    )
