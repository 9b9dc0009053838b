from __future__ import annotations

import pytest

from tarragon.client.http.proxies import proxy_url_for

PROXY = "http://proxy:3128"


@pytest.mark.parametrize(
    ("url", "exceptions", "proxied"),
    [
        ("https://api.example.com:6443", "", True),
        ("https://api.example.com:6443", "example.com", False),
        ("https://api.example.com:6443", ".example.com", False),
        ("https://example.com", ".example.com", True),
        ("https://example.com", "example.com", False),
        ("https://badexample.com", "example.com", True),
        ("https://api.example.com:6443", "other, api.example.com:6443", False),
        ("https://api.example.com:6443", "api.example.com:443", True),
        ("https://10.96.0.1:443", "10.96.0.0/12", False),
        ("https://10.196.0.1:443", "10.96.0.0/12", True),
        ("https://10.96.0.1:443", "10.96.0.1", False),
        ("https://10.96.0.1:443", "10.96.0.1:443", False),
        ("https://[fd00::1]:443", "fd00::/8", False),
        ("https://anything", "*", False),
        ("https://127.0.0.1:6443", "", False),
        ("https://[::1]:6443", "", False),
        ("https://localhost:6443", "", False),
    ],
)
def test_exceptions_are_names_domains_networks_and_this_machine(url: str, exceptions: str, proxied: bool) -> None:  # noqa: FBT001
    assert proxy_url_for(url, {"HTTPS_PROXY": PROXY, "NO_PROXY": exceptions}) == (PROXY if proxied else "")


def test_each_scheme_has_its_variable_in_capitals_or_not() -> None:
    assert proxy_url_for("https://api", {"https_proxy": "proxy:3128"}) == PROXY
    assert proxy_url_for("http://api", {"https_proxy": "proxy:3128"}) == ""
    assert proxy_url_for("http://api", {"HTTP_PROXY": "proxy:3128", "http_proxy": "other"}) == PROXY
