"""Redacts secrets: in fields that hold secrets, in text that looks like a secret, and every occurrence of a known
secret value in any common encoding. Pure.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import quote, quote_plus

from tarragon.frameworks.dialect_detection import LAST_APPLIED_ANNOTATION
from tarragon.kube.meta import Json, JsonObject

REDACTED = "***"
MIN_SEARCH_LENGTH = 6
"""The minimum length of a value that is searched for in texts. Shorter values would match ordinary words."""

_DROPPED = frozenset({LAST_APPLIED_ANNOTATION, "managedFields"})
_NAMES = re.compile(
    r"token|secret|passw|pwd|credential|api_?-?key|access_?-?key|private|auth|cookie|session|dsn|webhook", re.IGNORECASE
)
"""Matches the names of variables, options and fields that hold secrets."""

_SECRET_PATTERNS = (
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"),  # a JSON web token
    re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-|xox[abprs]-|hf_|sk-)[\w-]{16,}"),
    re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"),
    re.compile(r"(?<=[Bb]earer )[\w.~+/=-]{8,}"),
    re.compile(r"(?<=[Bb]asic )[\w+/=]{8,}"),
)
_ASSIGNMENT = re.compile(
    r"""(?P<name>[\w.-]*(?:token|secret|passw(?:or)?d|api[_-]?key|access[_-]?key|credential)[\w.-]*)"""
    r"""(?P<sign>["']?[ \t]*[=:][ \t]*|["'],\s*(?=["'])|[ \t]+)(?P<quote>\\?["']?)(?P<value>[^\s"',;&\\]{3,})""",
    re.IGNORECASE,
)
"""`--password=…`, `TOKEN: …`, `"api_key": "…"`, `["--token", "…"]`."""
_NOT_SECRET = re.compile(r"true|false|null|none|\d+|\*\*\*", re.IGNORECASE)
_REFERENCE_NAME = re.compile(
    r"(?:name|ref|path|seconds|volume|mount|kind|type|request|requests|review)s?$", re.IGNORECASE
)
"""Matches the ends of names that only refer to a secret, such as `secretName`."""


def is_secret_name(name: str) -> bool:
    return _NAMES.search(name) is not None


class Redactor:
    """Redacts known secrets and text that looks like a secret.

    Pass all objects to `add_secrets_of` before redacting the first text.
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._known: set[str] = set()
        self._forms: list[str] | None = None
        self.count = 0
        """The number of redactions."""
        for value in known:
            self.add_secret(value)

    def add_secret(self, value: str) -> None:
        """Add a secret value. Each line of a value with several lines is a secret, too."""
        for part in {value, value.strip(), *value.splitlines()}:
            if len(part) >= MIN_SEARCH_LENGTH:
                self._known.add(part)
                self._forms = None

    def add_secrets_of(self, body: Json) -> None:
        """Add all values in fields that hold secrets."""
        for value in _secrets(body):
            self.add_secret(value)

    def redact_object(self, body: JsonObject) -> JsonObject:
        """Return a redacted copy of an object, without managedFields and the last-applied-configuration annotation."""
        return {str(name): value for name, value in self._redacted(body).items()}

    def redact_text(self, text: str) -> str:
        for form in self._all_forms():
            if form in text:
                self.count += text.count(form)
                text = text.replace(form, REDACTED)
        for pattern in _SECRET_PATTERNS:
            text, number = pattern.subn(REDACTED, text)
            self.count += number
        text, number = _ASSIGNMENT.subn(_redact_assignment, text)
        self.count += number
        return text

    def _all_forms(self) -> Sequence[str]:
        """Return all encodings of all known secrets, longest first, because one may be part of another."""
        if self._forms is None:
            found = {form for value in self._known for form in encoded_forms(value) if len(form) >= MIN_SEARCH_LENGTH}
            self._forms = sorted(found, key=len, reverse=True)
        return self._forms

    def _redacted(self, value: Json) -> Json:
        """Redact each string of a JSON value separately."""
        if isinstance(value, str):
            return self.redact_text(value)
        if isinstance(value, list):
            return [self._element(value, index) for index in range(len(value))]
        if not isinstance(value, Mapping):
            return value
        if value.get("kind") == "Secret":
            value = {name: _blanked(each) if name in {"data", "stringData"} else each for name, each in value.items()}
        if isinstance(value.get("name"), str) and isinstance(value.get("value"), str) and is_secret_name(value["name"]):
            value = {**value, "value": self._redact()}
        return {name: self._field(str(name), each) for name, each in value.items() if name not in _DROPPED}

    def _field(self, name: str, value: Json) -> Json:
        is_secret = isinstance(value, str) and is_secret_name(name) and not _REFERENCE_NAME.search(name)
        return self._redact() if is_secret and not _NOT_SECRET.fullmatch(value) else self._redacted(value)

    def _element(self, elements: Sequence[Json], index: int) -> Json:
        """Redact a list element; the one after an option such as `--token` completely."""
        before = elements[index - 1] if index else None
        is_option = isinstance(before, str) and before.startswith("-") and "=" not in before and is_secret_name(before)
        return self._redact() if is_option and isinstance(elements[index], str) else self._redacted(elements[index])

    def _redact(self) -> str:
        self.count += 1
        return REDACTED


def encoded_forms(value: str) -> Iterator[str]:
    """Yield the encodings of a value: plain, JSON, Python, URL, hex, and base64 at each offset of the encoded text."""
    data = value.encode(errors="surrogatepass")
    yield value
    yield from (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1])
    yield json.dumps(json.dumps(value))[3:-3]
    yield from (quote(value, safe=""), quote_plus(value), quote(value))
    yield from (data.hex(), data.hex().upper())
    for offset in range(3):
        whole = b64encode(b"\0" * offset + data).decode().rstrip("=")
        begin, end = -(-offset * 8 // 6), (offset + len(data)) * 8 // 6
        core = whole[begin:end]
        yield from (core, core.replace("+", "-").replace("/", "_"))


def _secrets(value: Json) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from _secrets(each)
        return
    if not isinstance(value, Mapping):
        return
    if value.get("kind") == "Secret":
        yield from _of_secret(value)
    name, text = value.get("name"), value.get("value")
    if isinstance(name, str) and isinstance(text, str) and is_secret_name(name):
        yield text
    for inner in value.values():
        yield from _secrets(inner)


def _of_secret(body: JsonObject) -> Iterator[str]:
    yield from (str(text) for text in (body.get("stringData") or {}).values())
    for text in (body.get("data") or {}).values():
        yield str(text)
        try:
            yield b64decode(str(text)).decode()
        except (NotBase64, ValueError):
            continue


def _blanked(value: Json) -> Json:
    return dict.fromkeys(value, REDACTED) if isinstance(value, Mapping) else REDACTED


def _redact_assignment(found: re.Match[str]) -> str:
    if _NOT_SECRET.fullmatch(found["value"]) or _REFERENCE_NAME.search(found["name"]):
        return found[0]
    is_option = found["name"].startswith("-")
    if not is_option and "=" not in found["sign"] and ":" not in found["sign"]:
        return found[0]  # two words of a sentence, not a name and its value
    return f"{found['name']}{found['sign']}{found['quote']}{REDACTED}"
