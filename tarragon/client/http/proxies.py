"""Finds the proxy for a URL by HTTPS_PROXY, HTTP_PROXY and NO_PROXY, with the rules of Go's net/http."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from yarl import URL


def proxy_url_for(url: str, environment: Mapping[str, str]) -> str:
    """The URL of the proxy; empty if there is none. Loopback addresses are never proxied."""
    address = URL(url)
    host, port = address.host or "", address.port or 0
    proxy = _variable(environment, f"{address.scheme}_proxy")
    if not proxy or _is_loopback(host) or _is_excepted(host, port, _variable(environment, "no_proxy")):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _variable(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name.upper()) or environment.get(name, "")


def _is_loopback(host: str) -> bool:
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _is_excepted(host: str, port: int, exceptions: str) -> bool:
    words = [word.strip().lower() for word in exceptions.split(",")]
    return any(word and _matches(host.lower(), port, word) for word in words)


def _matches(host: str, port: int, word: str) -> bool:
    if word == "*":
        return True
    address = _address(host)
    if address is not None:
        try:
            return address in ipaddress.ip_network(word, strict=False)
        except ValueError:
            pass  # not a network: a name, or an address with a port
    name, separator, wanted = word.rpartition(":")
    if separator and wanted.isdigit():
        word = name.strip("[]") if int(wanted) == port else "-"
    domain = word.removeprefix("*").removeprefix(".")
    return host.endswith(f".{domain}") or (host == domain and not word.startswith((".", "*.")))


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
