"""Renews the list of Debian's packages: the newest version of each, and what it depends on.

Debian's signature is checked here, with gpgv and Debian's keys, and the hashes that it covers are written down: a build
trusts them alone.
"""

from __future__ import annotations

import email.utils
import hashlib
import itertools
import lzma
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tarragon.base.clock import Clock
from tools.image.debian import ARCHIVES, Lock, Package
from tools.image.download import fetch, read
from tools.image.errors import DownloadError, ImageError

RELEASE = "trixie"
SUITES = (("debian", RELEASE), ("debian", f"{RELEASE}-updates"), ("debian-security", f"{RELEASE}-security"))
ARCHITECTURES = ("amd64", "arm64")
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
ROOTS = (
    "base-files",
    "ca-certificates",
    "libpython3.13-stdlib",
    "libstdc++6",  # NumPy is linked with it
    "python3.13-minimal",
)
LEFT_OUT: Mapping[str, str] = {
    "awk": "for the scripts of packages, which do not run",
    "debconf": "as above",
    "openssl": "as above; the library is libssl3t64",
    "libdb5.3t64": "for the module dbm.ndbm, which is left out",
    "libncursesw6": "for the module curses, which is left out",
    "libreadline8t64": "for the module readline, which is left out",
    "libtinfo6": "for curses and readline, too",
    "openssl-provider-legacy": "for algorithms that nobody should use",
}
"""Dependencies that the image does without, with the reasons."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A package as the index of an archive has it."""

    archive: str
    fields: Mapping[str, str]

    @property
    def name(self) -> str:
        return self.fields["Package"]

    @property
    def version(self) -> str:
        return self.fields["Version"]

    @property
    def dependencies(self) -> Iterator[str]:
        """The first of each list of alternatives."""
        for field in ("Pre-Depends", "Depends"):
            for item in filter(None, self.fields.get(field, "").split(",")):
                yield re.split(r"[|(:]", item)[0].strip()


def renew_lock(clock: Clock, cache: Path) -> Lock:
    indexes: dict[str, list[Entry]] = {name: [] for name in ARCHITECTURES}
    for archive, suite in SUITES:
        release = _signed_release(archive, suite, clock)
        for architecture in ARCHITECTURES:
            path = f"main/binary-{architecture}/Packages.xz"
            if not (found := re.search(rf"^ ([0-9a-f]{{64}}) +\d+ {re.escape(path)}$", release, re.MULTILINE)):
                raise ImageError(f"{archive} {suite} has no {path}")
            index = fetch([f"{ARCHIVES[archive]}/dists/{suite}/{path}"], found[1], cache).read_bytes()
            indexes[architecture] += parse_index(archive, lzma.decompress(index).decode())
    packages = {name: [_locked(each, cache) for each in select(entries)] for name, entries in indexes.items()}
    return Lock(RELEASE, packages)


def parse_index(archive: str, text: str) -> Iterator[Entry]:
    for stanza in text.split("\n\n"):
        if fields := dict(re.findall(r"^([A-Za-z0-9-]+): (.*)$", stanza, re.MULTILINE)):
            yield Entry(archive, fields)


def select(entries: Sequence[Entry], roots: Sequence[str] = ROOTS) -> list[Entry]:
    """Return the newest version of these packages and of all that they depend on, by name."""
    newest: dict[str, Entry] = {}
    for entry in entries:
        known = newest.get(entry.name)
        if known is None or version_key(entry.version) > version_key(known.version):
            newest[entry.name] = entry
    selected: dict[str, Entry] = {}
    pending = [*roots]
    while pending:
        name = pending.pop()
        if name in selected or name in LEFT_OUT:
            continue
        if name not in newest:
            raise ImageError(f"Debian has no package {name}: change ROOTS or LEFT_OUT in tools/image/lock.py")
        selected[name] = newest[name]
        pending += newest[name].dependencies
    return sorted(selected.values(), key=lambda entry: entry.name)


def version_key(version: str) -> tuple[tuple[tuple[tuple[int, ...], int], ...], ...]:
    """Return what orders versions as dpkg does: `~` is before the end, letters are before all other characters."""
    epoch, _, rest = version.rpartition(":")
    upstream, _, revision = rest.rpartition("-") if "-" in rest else (rest, "", "")
    return tuple(_parts(part) for part in (epoch or "0", upstream, revision))


def _parts(text: str) -> tuple[tuple[tuple[int, ...], int], ...]:
    pairs = re.findall(r"(\D*)(\d*)", text)
    # The end of a part counts as 0, which lies between `~` and all others.
    return tuple(((*map(_rank, letters), 0), int(digits or 0)) for letters, digits in pairs)


def _rank(character: str) -> int:
    if character == "~":
        return -1
    return ord(character) if character.isalpha() else ord(character) + 256


def _locked(entry: Entry, cache: Path) -> Package:
    fields = entry.fields
    sha256, url = fields["SHA256"], f"{ARCHIVES[entry.archive]}/{fields['Filename']}"
    content = fetch([url], sha256, cache).read_bytes()
    return Package(
        name=entry.name,
        version=entry.version,
        architecture=fields["Architecture"],
        source=fields.get("Source", entry.name).split()[0],
        archive=entry.archive,
        path=fields["Filename"],
        sha256=sha256,
        sha1=hashlib.sha1(content, usedforsecurity=False).hexdigest(),
    )


def _signed_release(archive: str, suite: str, clock: Clock) -> str:
    """Return the list of a suite's indexes with their hashes, if Debian has signed it and it is not out of date."""
    url = f"{ARCHIVES[archive]}/dists/{suite}/InRelease"
    try:
        content = read(url)
    except OSError as error:
        raise DownloadError(f"Debian's archive can't be read: {url}: {error}") from error
    text = _verified(content, url)
    require_suite(text, suite, url)
    until = re.search(r"^Valid-Until: (.+)$", text, re.MULTILINE)
    if until and email.utils.parsedate_to_datetime(until[1].replace("UTC", "+0000")) < clock.now():
        raise ImageError(f"{url} was valid until {until[1]} only: use another mirror, or correct the clock")
    return text


def require_suite(release: str, suite: str, url: str) -> None:
    """A mirror might answer with another suite, which Debian has signed, too. Raises ImageError."""
    found = re.search(r"^Codename: (.+)$", release, re.MULTILINE)
    if found is None or found[1] != suite:
        raise ImageError(f"{url} is of {found[1] if found else 'no suite'}, not of {suite}: use another mirror")


def _verified(content: bytes, url: str) -> str:
    gpgv = shutil.which("gpgv")
    if gpgv is None or not KEYRING.exists():
        remedy = "on Debian and Ubuntu: sudo apt install gpgv debian-archive-keyring"
        raise ImageError(f"Debian's signature can't be checked without gpgv and {KEYRING}; {remedy}")
    with tempfile.TemporaryDirectory() as folder:
        signed, text = Path(folder, "InRelease"), Path(folder, "Release")
        signed.write_bytes(content)
        command = [gpgv, "--quiet", "--keyring", str(KEYRING), "--output", str(text), str(signed)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode != 0:
            raise ImageError(f"{url} has no valid signature of Debian:\n{ended.stderr.strip()}")
        return text.read_text()


def describe_changes(before: Lock | None, after: Lock) -> Iterator[str]:
    """Yield a line for each package whose version is another one now."""
    old = {} if before is None else _versions(before)
    new = _versions(after)
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            yield f"{name}: {old.get(name, 'none')} -> {new.get(name, 'none')}"


def _versions(lock: Lock) -> Mapping[str, str]:
    return {package.name: package.version for package in itertools.chain.from_iterable(lock.packages.values())}
