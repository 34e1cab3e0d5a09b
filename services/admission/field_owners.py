"""A review without its longest part that nobody reads: which client set which field of the object.

An API server keeps `managedFields` in the metadata of every object, and sends it along: half of a
pod that has many variables. A decoder skips it, but reads each byte for that. `emptied` finds both
ends of it at the speed of `memchr`, and only where there can be no doubt, if the body is JSON:

- A quote after a comma begins a text, since one within a text follows a backslash, and one that
  ends a text is not followed by a letter. So `,"managedFields":[` begins a list.
- `]},"spec":{` is outside of texts for the same reason, so its first bracket ends a list.
- No bracket stands between the two, so they are of one list.

The list is emptied rather than taken out: what a decoder says of a list in that place stays what it
was. Whether it is JSON is not looked at within the list. Elsewhere, and wherever there is doubt (a
client that orders fields in another way, a variable whose name has a bracket), the body stays.
"""

from typing import Final

LARGE: Final = 8192
"""Bytes of a review from which on looking for the list is less work than reading it."""

WORTH: Final = 1024
"""The same for the list itself and leaving it out."""

LOOKED_AT: Final = 32
"""Brackets that are looked at before the list is given up: annotations may be full of them."""

_BEFORE: Final = b',"managedFields":['
_AFTER: Final = b']},"spec":{'


def emptied(body: bytes) -> bytes:
    """Return a review without what is in the list of managed fields, or as it is."""
    if len(body) < LARGE:
        return body
    begin = body.find(b"[") + 1
    for _ in range(LOOKED_AT):
        if not begin:
            break
        if body.endswith(_BEFORE, 0, begin):
            end = body.find(b"]", begin)
            if end - begin < WORTH or not body.startswith(_AFTER, end):
                break
            return body if body.find(b"[", begin, end) >= 0 else body[:begin] + body[end:]
        begin = body.find(b"[", begin) + 1
    return body
