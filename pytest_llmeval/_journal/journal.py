"""The file of the journal: entries (key -> bytes) in one SQLite database that concurrent processes share.

A run never depends on it. Where the file cannot be used, a message says so and the model is asked as without a
journal: a damaged file, or one of another format, is set aside, and its intact entries move to a new file; on a full
disk or in a folder that cannot be written, entries are read and no longer written.
"""

from __future__ import annotations

import contextlib
import errno
import sqlite3
import time
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any
from typing import Literal
from typing import TypeAlias
from typing import TypeVar


#: The version of the format, in the name of the file and as its `user_version`.
FORMAT = 1
#: "llmj", in the header of the file.
APPLICATION = 0x6C6C6D6A
NAME = f"answers-{FORMAT}.sqlite"
#: The name of the last file that was set aside.
ASIDE = f"answers-{FORMAT}.set-aside.sqlite"
#: Bytes above which the entries that were not used for the longest time are removed, and the share that then stays.
CAPACITY, KEPT = 1 << 30, 0.8
#: Seconds to wait for another process that writes; one wave takes it some milliseconds.
BUSY_SECONDS = 30.0
#: The time of the last use is written again when it is older than this, so that reading rarely writes.
FRESH_SECONDS = 86_400
#: Keys in one query; SQLite's limit was 999 until 3.32.
KEYS_PER_QUERY = 500
CHECKSUM_BYTES = 8

# With row ids: without them, SQLite gives a value of more than a kilobyte a page of its own.
_TABLE = "CREATE TABLE entries (key BLOB PRIMARY KEY, value BLOB NOT NULL, used INTEGER NOT NULL)"
_INSERT = "INSERT OR REPLACE INTO entries VALUES (?, ?, ?)"
#: Primary result codes of SQLite (https://www.sqlite.org/rescode.html); extended ones have them in the low byte.
#: The general error is that of a header or table definition that makes no sense.
_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_NOTADB})

Value = TypeVar("Value")
#: Key, value with its checksum, and the time of the last use in seconds since 1970.
_Row: TypeAlias = tuple[bytes, bytes, int]


class Journal:
    """Entries of bytes by key, in a file in the folder that `folder` returns; it is opened when first used.

    `capacity` bounds the size of the file in bytes.
    """

    def __init__(self, folder: Callable[[], Path], capacity: int = CAPACITY) -> None:
        self._folder = folder
        self._capacity = capacity
        self._path = Path()
        self._connection: sqlite3.Connection | None = None
        #: The device and inode of the open file; another process may have replaced it since.
        self._opened: tuple[int, int] | None = None
        self._mode: Literal["write", "read", "off"] = "write"
        #: The reason why the file is no longer written, or no longer used.
        self._limit = ""
        self._mended: list[str] = []

    @property
    def messages(self) -> list[str]:
        """Sentences on what went wrong and what was done about it, for the user."""
        limits = {
            "write": [],
            "read": [f"cannot be written ({self._limit}): answers are taken from it, and no longer kept"],
            "off": [f"cannot be used ({self._limit}): answers are neither taken from it nor kept"],
        }
        return [f"journal {self._path}: {text}" for text in (*dict.fromkeys(self._mended), *limits[self._mode])]

    def get(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return the entries of those of the keys that are known and intact."""
        wanted = list(dict.fromkeys(keys))
        none: list[_Row] = []
        rows = self._use(lambda connection: _rows(connection, wanted), none)
        found = {key: value for key, stored, _ in rows if (value := _intact(key, stored)) is not None}
        if len(found) < len(rows):
            self._set_aside("some entries differ from their checksums")
        now = int(time.time())
        old = [(now, key) for key, _, used in rows if key in found and used < now - FRESH_SECONDS]
        if old:
            self._write("UPDATE entries SET used = ? WHERE key = ?", old)
        return found

    def put(self, entries: Mapping[bytes, bytes]) -> None:
        """Store entries in one transaction; those that are known are replaced."""
        now = int(time.time())
        if entries:
            self._write(_INSERT, [(key, value + _checksum(key, value), now) for key, value in entries.items()])

    def close(self) -> None:
        """Close the file; a later call opens it again."""
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
        self._connection = self._opened = None

    def _write(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        def write(connection: sqlite3.Connection) -> None:
            with _transaction(connection):
                connection.executemany(statement, rows)
            if _size(connection) > self._capacity:
                _prune(connection, int(self._capacity * KEPT))

        self._use(write, None, mode="write")

    def _use(
        self, work: Callable[[sqlite3.Connection], Value], otherwise: Value, mode: Literal["read", "write"] = "read"
    ) -> Value:
        """Return the result of `work` on the open file; after an error that can be mended it is tried once more."""
        for _ in range(2):
            if self._mode == "off" or (mode == "write" and self._mode == "read"):
                break
            try:
                return work(self._open())
            except (OSError, sqlite3.Error) as error:
                if not self._mend(error):
                    break
        return otherwise

    def _open(self) -> sqlite3.Connection:
        """Return the connection to the file, which is created if necessary. Raises OSError and sqlite3.Error."""
        if self._connection is not None and self._was_replaced():
            self.close()
        if self._connection is not None:
            return self._connection
        if self._path == Path():
            folder = self._folder()
            self._path = folder / NAME
            folder.mkdir(parents=True, exist_ok=True)
        self._opened = _identity(self._path)
        if self._mode == "read":
            self._connection = _connect_read_only(self._path)
        else:
            self._connection = sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None)
            _prepare(self._connection)
        self._opened = _identity(self._path)
        return self._connection

    def _mend(self, error: Exception) -> bool:
        """Return True if the work may be tried again; else `messages` says what is no longer done."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if self._was_replaced():
            self.close()
            return True
        if self._mode == "write" and (code in _DAMAGE or isinstance(error, _OtherFormatError)):
            return self._set_aside(_reason(error), salvage=code in _DAMAGE)
        if code == sqlite3.SQLITE_BUSY:
            self._mended.append(f"busy for {BUSY_SECONDS:.0f} s with another process: some answers are not kept")
            return False
        self.close()
        self._mode = "read" if self._mode == "write" and self._path.is_file() else "off"
        self._limit = self._limit or _reason(error)
        return True

    def _was_replaced(self) -> bool:
        """Return True if the open file is no longer the one of its name: set aside, or cleared, by another process."""
        return self._mode == "write" and self._opened is not None and _identity(self._path) != self._opened

    def _set_aside(self, reason: str, *, salvage: bool = True) -> bool:
        """Rename the file, move its intact entries to a new one, and return True; False if that is not possible."""
        opened, aside = self._opened, self._path.with_name(ASIDE)
        self.close()
        try:
            if self._mode == "read":
                raise PermissionError(errno.EACCES, self._limit)
            with _one_process(self._path.with_suffix(".lock")):
                if _identity(self._path) != opened:
                    return True
                # The log of a database is found by its name.
                for suffix in ("-wal", "-shm", ""):
                    part, target = Path(f"{self._path}{suffix}"), Path(f"{aside}{suffix}")
                    target.unlink(missing_ok=True)
                    with contextlib.suppress(FileNotFoundError):
                        part.rename(target)
        except OSError as error:
            self._mode, self._limit = "off", f"{reason}; it cannot be set aside: {_reason(error)}"
            return False
        rows = _salvaged(aside) if salvage else {}
        self._write(_INSERT, [(key, *row) for key, row in rows.items()])
        self._mended.append(f"{reason}; set aside as {aside.name}, and its {len(rows):,} intact entries are kept")
        return True


@contextlib.contextmanager
def _one_process(lock: Path) -> Iterator[None]:
    """Let no other process do the same at the same time, where the system has such locks."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class _OtherFormatError(sqlite3.Error):
    """The file is a database, but no journal of this format."""


def _prepare(connection: sqlite3.Connection) -> None:
    """Make a new file a journal. Raises _OtherFormatError if an existing one is not a journal of this format."""
    # An empty file is nothing to be lost.
    connection.execute("PRAGMA synchronous = OFF")
    # This fails while another process does the same; the mode is a property of the file.
    with contextlib.suppress(sqlite3.OperationalError):
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
    with _transaction(connection):
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        if not tables and not version and not application:
            connection.execute(_TABLE)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {FORMAT}")
        elif application != APPLICATION or tables != ["entries"]:
            raise _OtherFormatError("it is a database of another program")
        elif version != FORMAT:
            raise _OtherFormatError(f"it has format {version}, and this version of the plugin writes {FORMAT}")
    # A process that is killed loses nothing then; a machine that loses power, at most the last waves.
    connection.execute("PRAGMA synchronous = NORMAL")


def _connect_read_only(path: Path) -> sqlite3.Connection:
    """Return a connection that writes nothing, also where the files beside the database cannot be created."""
    for mode in ("mode=ro", "mode=ro&immutable=1"):
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=BUSY_SECONDS)
        try:
            connection.execute("SELECT key FROM entries LIMIT 1").fetchone()
        except sqlite3.Error as error:
            connection.close()
            refusal = error
        else:
            return connection
    raise refusal


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Hold the write lock from the start, so that what is read stays true; roll back on any exception."""
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        yield


def _rows(connection: sqlite3.Connection, keys: Sequence[bytes]) -> list[_Row]:
    rows: list[_Row] = []
    for start in range(0, len(keys), KEYS_PER_QUERY):
        part = keys[start : start + KEYS_PER_QUERY]
        marks = ", ".join("?" * len(part))
        rows += connection.execute(f"SELECT key, value, used FROM entries WHERE key IN ({marks})", part)  # noqa: S608
    return rows


def _checksum(key: bytes, value: bytes) -> bytes:
    return blake2b(key + value, digest_size=CHECKSUM_BYTES).digest()


def _intact(key: bytes, stored: bytes) -> bytes | None:
    """Return the value of a stored entry; None if it does not have its checksum."""
    value, checksum = stored[:-CHECKSUM_BYTES], stored[-CHECKSUM_BYTES:]
    return value if checksum == _checksum(key, value) else None


def _salvaged(path: Path) -> dict[bytes, tuple[bytes, int]]:
    """Return the intact entries of a damaged file: read from both ends, up to the damage."""
    rows: dict[bytes, tuple[bytes, int]] = {}
    for order in ("ASC", "DESC"):
        connection = sqlite3.connect(path)
        try:
            for key, stored, used in connection.execute(f"SELECT * FROM entries ORDER BY rowid {order}"):  # noqa: S608
                if isinstance(stored, bytes) and isinstance(key, bytes) and _intact(key, stored) is not None:
                    rows[key] = (stored, int(used))
        except (sqlite3.Error, ValueError, TypeError, OverflowError):
            pass
        finally:
            connection.close()
    return rows


def _size(connection: sqlite3.Connection) -> int:
    """Return the bytes of the pages in use."""
    count, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((count - free) * size)


def _prune(connection: sqlite3.Connection, target: int) -> None:
    """Remove the entries that were not used for the longest time, until about `target` bytes are left."""
    with _transaction(connection):
        excess = 1 - target / _size(connection)
        by_age = "SELECT used, SUM(LENGTH(key) + LENGTH(value)) FROM entries GROUP BY used ORDER BY used"
        ages = connection.execute(by_age).fetchall()
        removed, total, last = 0, sum(size for _, size in ages), 0
        for used, size in ages:
            if removed >= excess * total:
                break
            removed, last = removed + size, used
        connection.execute("DELETE FROM entries WHERE used <= ?", (last,))
    # `execute` would stop after the first page.
    connection.executescript("PRAGMA incremental_vacuum")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)
