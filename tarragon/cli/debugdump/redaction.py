"""Taking secrets out of what is sent to somebody else: by where they stand, by what they look like, and wherever a
value that is known to be one turns up again, in whatever encoding. Pure.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import quote, quote_plus

from tarragon.frameworks.recognition import LAST_APPLIED
from tarragon.kube.meta import Json, JsonObject

GONE = "***"
SHORTEST = 6
"""Characters. Shorter values are taken out where they stand; to look for them elsewhere would shred all texts."""

_LEFT_OUT = frozenset({LAST_APPLIED, "managedFields"})
_NAMES = re.compile(
    r"token|secret|passw|pwd|credential|api_?-?key|access_?-?key|private|auth|cookie|session|dsn|webhook", re.IGNORECASE
)
"""Of variables, options and fields."""

_LOOKS = (
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"),  # a JSON web token
    re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-|xox[abprs]-|hf_|sk-)[\w-]{16,}"),
    re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"),
    re.compile(r"(?<=[Bb]earer )[\w.~+/=-]{8,}"),
    re.compile(r"(?<=[Bb]asic )[\w+/=]{8,}"),
)
_SAID = re.compile(
    r"""(?P<name>[\w.-]*(?:token|secret|passw(?:or)?d|api[_-]?key|access[_-]?key|credential)[\w.-]*)"""
    r"""(?P<sign>["']?[ \t]*[=:][ \t]*|["'],\s*(?=["'])|[ \t]+)(?P<quote>\\?["']?)(?P<value>[^\s"',;&\\]{3,})""",
    re.IGNORECASE,
)
"""`--password=…`, `TOKEN: …`, `"api_key": "…"`, `["--token", "…"]`."""
_HARMLESS = re.compile(r"true|false|null|none|\d+|\*\*\*", re.IGNORECASE)
_NO_VALUE = re.compile(r"(?:name|ref|path|seconds|volume|mount|kind|type|request|requests|review)s?$", re.IGNORECASE)
"""Ends of names that have the word in them and say only where a secret is."""


def is_secret_name(name: str) -> bool:
    return _NAMES.search(name) is not None


class Redactor:
    """Knows more secrets the more objects it is shown: show it all before the first text is taken out."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._known: set[str] = set()
        self._forms: list[str] | None = None
        self.count = 0
        """How often something was taken out."""
        for value in known:
            self.learn(value)

    def learn(self, value: str) -> None:
        """A value that is nobody else's to know. Lines of one of several lines count by themselves, too."""
        for part in {value, value.strip(), *value.splitlines()}:
            if len(part) >= SHORTEST:
                self._known.add(part)
                self._forms = None

    def learn_from(self, body: Json) -> None:
        """All values in it that stand where secrets stand."""
        for value in _secrets(body):
            self.learn(value)

    def object(self, body: JsonObject) -> JsonObject:
        """A copy for others: also without what kubectl applied last, where all of it stands again."""
        return {str(name): value for name, value in self._without(body).items()}

    def text(self, text: str) -> str:
        for form in self._all_forms():
            if form in text:
                self.count += text.count(form)
                text = text.replace(form, GONE)
        for pattern in _LOOKS:
            text, number = pattern.subn(GONE, text)
            self.count += number
        text, number = _SAID.subn(_unsaid, text)
        self.count += number
        return text

    def _all_forms(self) -> Sequence[str]:
        """The longest first: what is a part of another one must not leave the rest of it behind."""
        if self._forms is None:
            found = {form for value in self._known for form in forms(value) if len(form) >= SHORTEST}
            self._forms = sorted(found, key=len, reverse=True)
        return self._forms

    def _without(self, value: Json) -> Json:
        """Each text by itself: what stands before it in an encoding is no part of it."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self._element(value, index) for index in range(len(value))]
        if not isinstance(value, Mapping):
            return value
        if value.get("kind") == "Secret":
            value = {name: _blanked(each) if name in {"data", "stringData"} else each for name, each in value.items()}
        if isinstance(value.get("name"), str) and isinstance(value.get("value"), str) and is_secret_name(value["name"]):
            value = {**value, "value": self._gone()}
        return {name: self._field(str(name), each) for name, each in value.items() if name not in _LEFT_OUT}

    def _field(self, name: str, value: Json) -> Json:
        is_secret = isinstance(value, str) and is_secret_name(name) and not _NO_VALUE.search(name)
        return self._gone() if is_secret and not _HARMLESS.fullmatch(value) else self._without(value)

    def _element(self, elements: Sequence[Json], index: int) -> Json:
        """What stands behind `--token` in a command."""
        before = elements[index - 1] if index else None
        is_option = isinstance(before, str) and before.startswith("-") and "=" not in before and is_secret_name(before)
        return self._gone() if is_option and isinstance(elements[index], str) else self._without(elements[index])

    def _gone(self) -> str:
        self.count += 1
        return GONE


def forms(value: str) -> Iterator[str]:
    """How it may stand in a text: plainly, escaped, in hex, in base64 wherever it begins in what was encoded."""
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
    name, said = value.get("name"), value.get("value")
    if isinstance(name, str) and isinstance(said, str) and is_secret_name(name):
        yield said
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
    return dict.fromkeys(value, GONE) if isinstance(value, Mapping) else GONE


def _unsaid(found: re.Match[str]) -> str:
    if _HARMLESS.fullmatch(found["value"]) or _NO_VALUE.search(found["name"]):
        return found[0]
    is_option = found["name"].startswith("-")
    if not is_option and "=" not in found["sign"] and ":" not in found["sign"]:
        return found[0]  # two words of a sentence
    return f"{found['name']}{found['sign']}{found['quote']}{GONE}"
