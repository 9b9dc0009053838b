"""Validates names, labels and keys as kube-apiserver does. Each check returns the fault, or an empty text."""

from __future__ import annotations

import re
from functools import lru_cache

DNS_LABEL_MAX_LENGTH = 63
PORT_NAME_MAX_LENGTH = 15

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_LABEL_VALUE = re.compile(rf"({_QUALIFIED.pattern})?")
_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_ENV_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_PATH_SEGMENT_BANNED = ("/", "%")
_MAX_SUBDOMAIN = 253


def subdomain(name: str) -> str:
    """A DNS-1123 subdomain: the name of most objects."""
    if len(name) > _MAX_SUBDOMAIN:
        return f"must be no more than {_MAX_SUBDOMAIN} characters"
    if _SUBDOMAIN.fullmatch(name):
        return ""
    return (
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
        "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
        r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
    )


def label(name: str) -> str:
    """A DNS-1123 label: the name of a namespace, container or volume."""
    if len(name) > DNS_LABEL_MAX_LENGTH:
        return f"must be no more than {DNS_LABEL_MAX_LENGTH} characters"
    if _LABEL.fullmatch(name):
        return ""
    return (
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and "
        "end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
        "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
    )


def label_1035(name: str) -> str:
    """A DNS-1035 label: parts of the names of kinds, and services before Kubernetes 1.37."""
    if len(name) > DNS_LABEL_MAX_LENGTH:
        return f"must be no more than {DNS_LABEL_MAX_LENGTH} characters"
    if _LABEL_1035.fullmatch(name):
        return ""
    return (
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
        "character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for "
        "validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
    )


def path_segment(name: str) -> str:
    """RBAC objects: whatever can stand in a URL's path."""
    if name in {".", ".."}:
        return f"may not be '{name}'"
    for banned in _PATH_SEGMENT_BANNED:
        if banned in name:
            return f"may not contain '{banned}'"
    return ""


@lru_cache(maxsize=4096)
def qualified(name: str) -> str:
    """A qualified name, `name` or `domain/name`: the key of a label or annotation, or a finalizer."""
    prefix, slash, rest = name.rpartition("/")
    if slash and (not prefix or subdomain(prefix)):
        return f"prefix part {subdomain(prefix)}" if prefix else "prefix part must be non-empty"
    if not rest:
        return "name part must be non-empty"
    if len(rest) > DNS_LABEL_MAX_LENGTH:
        return f"name part must be no more than {DNS_LABEL_MAX_LENGTH} bytes"
    if _QUALIFIED.fullmatch(rest):
        return ""
    return (
        "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
        "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
        "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
    )


@lru_cache(maxsize=4096)
def label_value(value: str) -> str:
    if len(value) > DNS_LABEL_MAX_LENGTH:
        return f"must be no more than {DNS_LABEL_MAX_LENGTH} bytes"
    if _LABEL_VALUE.fullmatch(value):
        return ""
    return (
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
        "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for "
        "validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
    )


def port_name(name: str) -> list[str]:
    """All faults of a port's name."""
    if len(name) > PORT_NAME_MAX_LENGTH:
        return [f"must be no more than {PORT_NAME_MAX_LENGTH} characters"]
    faults = []
    if not re.fullmatch(r"[-a-z0-9]+", name):
        faults.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search(r"[a-z]", name):
        faults.append("must contain at least one letter (a-z)")
    if "--" in name:
        faults.append("must not contain consecutive hyphens")
    if name.startswith("-") or name.endswith("-"):
        faults.append("must not begin or end with a hyphen")
    return faults


def config_key(key: str) -> str:
    """A key of a ConfigMap or Secret."""
    if len(key) > _MAX_SUBDOMAIN:
        return f"must be no more than {_MAX_SUBDOMAIN} characters"
    if key in {".", ".."}:
        return f"must not be '{key}'"
    if _CONFIG_KEY.fullmatch(key):
        return ""
    return (
        "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or "
        "'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
    )


@lru_cache(maxsize=4096)
def env_name(name: str) -> str:
    if _ENV_NAME.fullmatch(name):
        return ""
    return (
        "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', and "
        "must not start with a digit (e.g. 'my.env-name',  or 'MY_ENV.NAME',  or 'MyEnvName1', regex used for "
        "validation is '[-._a-zA-Z][-._a-zA-Z0-9]*')"
    )


def dns_label_error(name: str, *, may_begin_with_digit: bool = False) -> str | None:
    """Why a DNS label is invalid, as a predicate for our messages (`is 70 characters long, …`); None if it is valid.

    RFC 1035, for Services, requires a letter first; RFC 1123, for containers, also accepts a digit.
    """
    if len(name) > DNS_LABEL_MAX_LENGTH:
        return f"is {len(name)} characters long, more than the maximum of {DNS_LABEL_MAX_LENGTH}"
    if not _LABEL.fullmatch(name):
        return "may only contain lower-case letters, digits and dashes, and no dash at either end"
    if name[0].isdigit() and not may_begin_with_digit:
        return "must begin with a letter"
    return None
