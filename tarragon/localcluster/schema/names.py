"""Which names, labels and keys are allowed. Each check returns what is wrong, or an empty text."""

from __future__ import annotations

import re
from functools import lru_cache

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_LABEL_VALUE = re.compile(rf"({_QUALIFIED.pattern})?")
_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_ENV_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_PATH_SEGMENT_BANNED = ("/", "%")
_LONGEST_LABEL = 63
_LONGEST_PORT_NAME = 15
_LONGEST_SUBDOMAIN = 253


def subdomain(name: str) -> str:
    """DNS-1123 subdomain: what most objects are named by."""
    if len(name) > _LONGEST_SUBDOMAIN:
        return f"must be no more than {_LONGEST_SUBDOMAIN} characters"
    if _SUBDOMAIN.fullmatch(name):
        return ""
    return (
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
        "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
        r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
    )


def label(name: str) -> str:
    """DNS-1123 label: namespaces, containers, volumes."""
    if len(name) > _LONGEST_LABEL:
        return f"must be no more than {_LONGEST_LABEL} characters"
    if _LABEL.fullmatch(name):
        return ""
    return (
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and "
        "end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
        "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
    )


def label_1035(name: str) -> str:
    """DNS-1035 label: services."""
    if len(name) > _LONGEST_LABEL:
        return f"must be no more than {_LONGEST_LABEL} characters"
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
    """Keys of labels and annotations, finalizers: `name` or `domain/name`."""
    prefix, slash, rest = name.rpartition("/")
    if slash and (not prefix or subdomain(prefix)):
        return f"prefix part {subdomain(prefix)}" if prefix else "prefix part must be non-empty"
    if not rest:
        return "name part must be non-empty"
    if len(rest) > _LONGEST_LABEL:
        return f"name part must be no more than {_LONGEST_LABEL} characters"
    if _QUALIFIED.fullmatch(rest):
        return ""
    return (
        "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
        "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
        "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
    )


@lru_cache(maxsize=4096)
def label_value(value: str) -> str:
    if len(value) > _LONGEST_LABEL:
        return f"must be no more than {_LONGEST_LABEL} characters"
    if _LABEL_VALUE.fullmatch(value):
        return ""
    return (
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
        "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for "
        "validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
    )


def port_name(name: str) -> list[str]:
    """Everything that is wrong with a port's name."""
    if len(name) > _LONGEST_PORT_NAME:
        return [f"must be no more than {_LONGEST_PORT_NAME} characters"]
    told = []
    if not re.fullmatch(r"[-a-z0-9]+", name):
        told.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search(r"[a-z]", name):
        told.append("must contain at least one letter (a-z)")
    if "--" in name:
        told.append("must not contain consecutive hyphens")
    if name.startswith("-") or name.endswith("-"):
        told.append("must not begin or end with a hyphen")
    return told


def config_key(key: str) -> str:
    """Keys of ConfigMaps and Secrets."""
    if len(key) > _LONGEST_SUBDOMAIN:
        return f"must be no more than {_LONGEST_SUBDOMAIN} characters"
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
