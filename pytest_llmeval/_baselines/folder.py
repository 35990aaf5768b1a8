"""Where baselines lie: NAME is ``.llmeval/baselines/NAME`` under the root folder, PATH a folder anywhere."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from pytest_llmeval._baselines.record import Record
from pytest_llmeval._baselines.record import read_record
from pytest_llmeval._baselines.record import record_text
from pytest_llmeval._errors import BaselineError
from pytest_llmeval._errors import SettingError
from pytest_llmeval._plain import did_you_mean


#: Under pytest's root folder.
HOME = Path(".llmeval", "baselines")

_SUFFIX = ".txt"


class Folder:
    """One baseline: a file for each task. `name` is what the user called it."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.path = path

    @classmethod
    def named(cls, text: str, root: Path, base: Path) -> Folder:
        """The baseline of NAME-or-PATH: what holds a slash, and ``.`` or ``..``, is a path, relative to `base`."""
        if set(text) & {"/", os.sep} or text.strip(".") == "" or Path(text).is_absolute():
            return cls(text, base / Path(text).expanduser())
        return cls(text, root / HOME / text)

    def check(self, origin: str) -> None:
        """Raise SettingError unless the folder is there: it says which baselines there are."""
        if self.path.is_dir() and any(self.tasks()):
            return
        if self.path.is_dir():
            problem = f"{self.name!r} holds no baseline (no *{_SUFFIX} in {self.path})"
        elif self.path.exists():
            problem = f"{self.name!r} is no folder"
        else:
            problem = f"there is no baseline {self.name!r} ({self.path}){self._others()}"
        raise SettingError(f"{origin}: {problem}; --llmeval-update-baseline writes one")

    def check_writable(self, origin: str) -> None:
        """Raise SettingError if files cannot be written there, without making anything yet."""
        near = next(path for path in (self.path, *self.path.parents) if path.exists())
        if not near.is_dir():
            raise SettingError(f"{origin}: {self.name!r} cannot be written: {near} is no folder")
        if not os.access(near, os.W_OK | os.X_OK):
            raise SettingError(f"{origin}: {self.name!r} cannot be written: {near} is read-only")

    def tasks(self) -> Iterator[Path]:
        """The files of its tasks."""
        return iter(sorted(self.path.glob(f"*{_SUFFIX}")))

    def path_of(self, task: str) -> Path:
        """The file of a task. Names hold slashes and colons, file names cannot."""
        return self.path / f"{quote(task, safe=' ,+@()[]=')}{_SUFFIX}"

    def read(self, task: str) -> Record | None:
        """The baseline of a task, None if it has none. Raises BaselineError for a file that cannot be used."""
        path = self.path_of(task)
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise BaselineError(path, f"cannot be read: {error}") from None
        record = read_record(text, path)
        if record.header.task != task:
            raise BaselineError(path, f"is the baseline of {record.header.task!r}: was the file renamed?", line=3)
        return record

    def write(self, record: Record) -> Path:
        """Write a task's file, whole or not at all. Raises SettingError."""
        path = self.path_of(record.header.task)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(
                "w", encoding="utf-8", newline="\n", dir=self.path, prefix=".writing-", delete=False
            ) as file:
                file.write(record_text(record))
            os.chmod(file.name, _usual_mode())
            try:
                os.replace(file.name, path)
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(file.name)
                raise
        except OSError as error:
            raise SettingError(f"baseline {self.name!r}: cannot write {path}: {error.strerror or error}") from None
        return path

    def _others(self) -> str:
        there = sorted(path.name for path in self.path.parent.glob("*") if path.is_dir())
        if not there:
            return ""
        return f"; there are: {', '.join(there)}{did_you_mean(self.path.name, there)}"


def _usual_mode() -> int:
    """What the process's umask leaves of rw-rw-rw-: temporary files are for their owner alone."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
