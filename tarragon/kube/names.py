"""Which names Kubernetes accepts."""

from __future__ import annotations

import re

LONGEST_LABEL = 63

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def fault_of_label_name(name: str, *, may_begin_with_digit: bool = False) -> str | None:
    """What is wrong with a DNS label, as a claim (`is 70 characters long, …`), or None.

    RFC 1035, which Services obey, wants a letter first; RFC 1123, which containers obey, takes a digit.
    """
    if len(name) > LONGEST_LABEL:
        return f"is {len(name)} characters long, and {LONGEST_LABEL} are allowed"
    if not _LABEL.fullmatch(name):
        return "may only have lower-case letters, digits and dashes, none of them a dash at either end"
    if name[0].isdigit() and not may_begin_with_digit:
        return "must begin with a letter"
    return None
