"""The file of the store: one SQLite database, and the user-facing errors for everything that can be wrong with it.

    history   every revision in the window, and older ones that are still needed: the newest revision of each existing
              object, and the last one before the window (a watch that starts there needs to know what matched before)
    current   the revision of each existing object
    meta      `compacted`: watches can no longer start before this revision

A server locks the file exclusively. The lock keeps a second server out, and keeps SQLite's wal-index out of shared
memory, where a full disk would kill the process with SIGBUS.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tarragon.base.errors import TarragonError

T = TypeVar("T")

SCHEMA = 1
"""The version of the table layout, stored in the file as user_version."""

_APPLICATION_ID = 0x54_52_52_4E
_LOCK_WAIT_MS = 2_000
_MAX_ROWS_PER_STATEMENT = 400
_MOUNTS = Path("/proc/self/mountinfo")
_NETWORK_FILE_SYSTEMS = re.compile(
    r"nfs\d?|cifs|smb\d?|smbfs|9p|afs|ncpfs|glusterfs|fuse\.(sshfs|glusterfs|s3fs|rclone|davfs\w*)"
)
_LAYOUT = """
CREATE TABLE history (
    revision INTEGER PRIMARY KEY,
    is_gone INTEGER NOT NULL,
    kind TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    written REAL NOT NULL,
    body BLOB NOT NULL
);
CREATE TABLE current (
    kind TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    revision INTEGER NOT NULL,
    PRIMARY KEY (kind, namespace, name)
) WITHOUT ROWID;
CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID
"""


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One revision of one object. `written` is wall time in seconds; a deletion holds the object's last state."""

    revision: int
    is_deletion: bool
    kind: str
    namespace: str
    name: str
    written: float
    body: bytes


class WriteFailedError(Exception):
    """A transaction could not be written to disk; nothing of it is stored."""


class Database:
    """The open file. Every method may block on the disk; only one thread may call methods at a time."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection

    @classmethod
    def open(cls, path: Path, first: int) -> Database:
        """Open the file for reading and writing. A file that does not exist is created; its revisions follow `first`.

        Raises TarragonError with a message for users.
        """
        reject_network_file_system(path)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise _cannot_open(path, error.strerror or str(error)) from error
        with _user_errors(path):
            path.touch(mode=0o600)  # it holds Secrets, and SQLite creates its log with the mode of the file
            connection = sqlite3.connect(
                path, isolation_level=None, check_same_thread=False, timeout=_LOCK_WAIT_MS / 1000
            )
            try:
                _prepare(path, connection, first)
            except BaseException:
                connection.close()
                raise
        path.chmod(0o600)
        return cls(path, connection)

    @property
    def compacted(self) -> int:
        with _user_errors(self.path):
            return int(self._connection.execute("SELECT value FROM meta WHERE name = 'compacted'").fetchone()[0])

    def rows(self) -> Iterator[HistoryRow]:
        """All rows of the history, in order of revision."""
        with _user_errors(self.path):
            for row in self._connection.execute("SELECT * FROM history ORDER BY revision"):
                yield HistoryRow(row[0], bool(row[1]), *row[2:])

    def current_revisions(self) -> set[int]:
        """The current revisions of all existing objects."""
        with _user_errors(self.path):
            return {row[0] for row in self._connection.execute("SELECT revision FROM current")}

    def append(self, rows: Sequence[HistoryRow]) -> None:
        """Store all rows or none; they are durable when the method returns. Raises WriteFailedError.

        Many rows go into one statement, because every statement releases the interpreter lock and must acquire it
        again.
        """
        with self._transaction() as connection:
            for some in _slices(rows):
                values = ",".join(["(?,?,?,?,?,?,?)"] * len(some))
                flat = [
                    value
                    for row in some
                    for value in (
                        row.revision,
                        row.is_deletion,
                        row.kind,
                        row.namespace,
                        row.name,
                        row.written,
                        row.body,
                    )
                ]
                connection.execute(f"INSERT INTO history VALUES {values}", flat)  # noqa: S608 - only question marks
            latest = {(row.kind, row.namespace, row.name): row for row in rows}.values()
            self._set_current([row for row in latest if not row.is_deletion])
            self._drop_current([row for row in latest if row.is_deletion])

    def compact(self, revisions: Sequence[int], compacted: int) -> None:
        """Drop old revisions, and record `compacted`. Raises WriteFailedError."""
        with self._transaction() as connection:
            for some in _slices(revisions):
                marks = ",".join("?" * len(some))
                connection.execute(f"DELETE FROM history WHERE revision IN ({marks})", some)  # noqa: S608 - as above
            connection.execute("UPDATE meta SET value = ? WHERE name = 'compacted'", (compacted,))

    def close(self) -> None:
        """Merge the write-ahead log into the file and close it."""
        with contextlib.suppress(sqlite3.Error):  # a full disk must not keep the server from stopping
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._connection.close()

    def _set_current(self, rows: Sequence[HistoryRow]) -> None:
        for some in _slices(rows):
            values = ",".join(["(?,?,?,?)"] * len(some))
            flat = [value for row in some for value in (row.kind, row.namespace, row.name, row.revision)]
            self._connection.execute(f"REPLACE INTO current VALUES {values}", flat)  # noqa: S608 - as above

    def _drop_current(self, rows: Sequence[HistoryRow]) -> None:
        for some in _slices(rows):
            values = ",".join(["(?,?,?)"] * len(some))
            flat = [value for row in some for value in (row.kind, row.namespace, row.name)]
            self._connection.execute(
                f"DELETE FROM current WHERE (kind, namespace, name) IN (VALUES {values})",  # noqa: S608 - as above
                flat,
            )

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield self._connection
            self._connection.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            if self._connection.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
            raise WriteFailedError(f"{self.path}: {error}") from error


class DatabaseReader:
    """The file opened read-only while no server runs."""

    def __init__(self, path: Path, connection: sqlite3.Connection, folder: Path | None) -> None:
        self._path = path
        self._connection = connection
        self._folder = folder

    @classmethod
    def open(cls, path: Path) -> DatabaseReader:
        """Open the file. Raises TarragonError if it does not exist, is locked by a server, is corrupt or newer.

        A file in a read-only folder is read from a copy: to read a log that a crash has left, SQLite must write into
        the folder.
        """
        with _user_errors(path):
            exists = path.exists()
        if not exists:
            raise TarragonError(
                f"there is no local cluster in {path.parent} yet",
                remedy="create one with `tarragon up` or `tarragon run`, or set TARRAGON_HOME to its folder",
            )
        folder: Path | None = None
        try:
            with _user_errors(path):
                connection = _read_only(path)
        except TarragonError as error:
            if not isinstance(error.__cause__, sqlite3.OperationalError) or _is_busy(error.__cause__):
                raise
            folder = Path(tempfile.mkdtemp(prefix="tarragon-"))
            with _user_errors(path):
                connection = _read_only(_copied(path, folder))
        return cls(path, connection, folder)

    def bodies(self, kind: str, namespace: str = "", name: str = "") -> list[bytes]:
        """The encoded objects of a kind, in order of their keys. An empty namespace or name means all."""
        query = """SELECT body FROM current JOIN history USING (revision)
            WHERE current.kind = ? AND (? = '' OR current.namespace = ?) AND (? = '' OR current.name = ?)
            ORDER BY current.namespace, current.name"""
        with _user_errors(self._path):
            return [row[0] for row in self._connection.execute(query, (kind, namespace, namespace, name, name))]

    @property
    def revision(self) -> int:
        """The newest revision in the file."""
        query = "SELECT max(value) FROM (SELECT max(revision) AS value FROM history UNION ALL SELECT value FROM meta)"
        with _user_errors(self._path):
            return int(self._connection.execute(query).fetchone()[0] or 0)

    def close(self) -> None:
        self._connection.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def network_file_system(path: Path, mounts: str) -> str:
    """The type of the network file system that holds `path`, empty for a local one. `mounts` is a mountinfo table."""
    best, kind = "", ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, tail = before.split(" "), after.split(" ")
        if len(fields) < 5 or not tail[0]:  # noqa: PLR2004 - mountinfo's fifth field is the mount point
            continue
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4])
        if path.is_relative_to(point) and len(point) >= len(best):
            best, kind = point, tail[0]
    return kind if _NETWORK_FILE_SYSTEMS.fullmatch(kind) else ""


def reject_network_file_system(path: Path) -> None:
    """Raise TarragonError if `path` is on a network file system, where locks and shared memory are not reliable."""
    if not sys.platform.startswith("linux") or not _MOUNTS.exists():
        return
    kind = network_file_system(path.resolve(), _MOUNTS.read_text(errors="replace"))
    if kind:
        raise TarragonError(
            f"the store {path} would be on a network file system ({kind})",
            why="a database there can lose writes when two machines open it or the connection breaks",
            remedy="set TARRAGON_HOME to a folder on a local disk",
        )


def _prepare(path: Path, connection: sqlite3.Connection, first: int) -> None:
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    # What is dropped may be a password: overwrite it. Some builds of SQLite do so by default, others don't.
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute("PRAGMA wal_autocheckpoint = 4000")
    connection.execute("BEGIN IMMEDIATE")  # takes the lock that keeps a second server out
    version = _checked_version(path, connection)
    if version == 0:
        for statement in _LAYOUT.split(";\n"):
            connection.execute(statement)
        connection.execute("INSERT INTO meta VALUES ('compacted', ?)", (first,))
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA}")
    connection.execute("COMMIT")


def _checked_version(path: Path, connection: sqlite3.Connection) -> int:
    """The layout version of the file, 0 when the file is new and empty."""
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    application = int(connection.execute("PRAGMA application_id").fetchone()[0])
    tables = int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    if application != _APPLICATION_ID and (tables or application):
        raise TarragonError(
            f"{path} is a database of another program",
            remedy="set TARRAGON_HOME to another folder",
        )
    if version > SCHEMA:
        raise TarragonError(
            f"the store {path} was written by a newer Tarragon",
            why=f"its layout has version {version}; this program supports {SCHEMA}",
            remedy="upgrade Tarragon, or set TARRAGON_HOME to another folder; nothing was changed",
        )
    return version


def _read_only(path: Path) -> sqlite3.Connection:
    uri = f"{path.resolve().as_uri()}?mode=ro"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=_LOCK_WAIT_MS / 1000)
    try:
        _checked_version(path, connection)
        connection.execute("SELECT value FROM meta").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _copied(path: Path, folder: Path) -> Path:
    for suffix in ("", "-wal"):
        source = path.with_name(path.name + suffix)
        if source.exists():
            shutil.copyfile(source, folder / source.name)
    return folder / path.name


@contextlib.contextmanager
def _user_errors(path: Path) -> Iterator[None]:
    """Turn errors of SQLite and the file system into TarragonError."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if _is_busy(error):
            raise TarragonError(
                f"the store {path} is in use",
                why="another Tarragon server has it open",
                remedy="stop it with `tarragon down`, or set TARRAGON_HOME to another folder",
            ) from error
        raise _cannot_open(path, str(error)) from error
    except sqlite3.DatabaseError as error:
        raise _corrupt(path, str(error)) from error
    except OSError as error:
        raise _cannot_open(path, error.strerror or str(error)) from error


def _is_busy(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def _cannot_open(path: Path, why: str) -> TarragonError:
    return TarragonError(
        f"cannot use the store {path}",
        why=why,
        remedy="check that you may write to the folder and its disk has space, or set TARRAGON_HOME to another folder",
    )


def _corrupt(path: Path, why: str) -> TarragonError:
    return TarragonError(
        f"the store {path} is corrupt",
        why=why,
        remedy=f"nothing was deleted; to start with an empty store, move this one away: {move_away_command(path)}",
    )


def move_away_command(path: Path) -> str:
    """The shell command that moves a store and its SQLite logs into another folder."""
    return f"mkdir {path}.broken && mv {path} {path}-* {path}.broken/"


def _slices(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), _MAX_ROWS_PER_STATEMENT):
        yield items[start : start + _MAX_ROWS_PER_STATEMENT]
