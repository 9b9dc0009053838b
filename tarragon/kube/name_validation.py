"""Validates DNS labels by the rules of Kubernetes."""

from __future__ import annotations

import re

DNS_LABEL_MAX_LENGTH = 63

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def dns_label_error(name: str, *, may_begin_with_digit: bool = False) -> str | None:
    """Why a DNS label is invalid, as a predicate (`is 70 characters long, …`); None if it is valid.

    RFC 1035, for Services, requires a letter first; RFC 1123, for containers, also accepts a digit.
    """
    if len(name) > DNS_LABEL_MAX_LENGTH:
        return f"is {len(name)} characters long, more than the maximum of {DNS_LABEL_MAX_LENGTH}"
    if not _LABEL.fullmatch(name):
        return "may only contain lower-case letters, digits and dashes, and no dash at either end"
    if name[0].isdigit() and not may_begin_with_digit:
        return "must begin with a letter"
    return None
