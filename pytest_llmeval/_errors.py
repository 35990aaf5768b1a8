"""The exceptions for mistakes of users, and for faults of their files, models and machines.

    LLMEvalError                 base class; the message names place, value and remedy
    |-- TaskFileError            a task or group YAML cannot be read
    |-- DataError                a data set, split or doc cannot be found or used
    |-- TemplateError            a template cannot be rendered for a doc
    |-- ModelError               a model cannot be loaded, or cannot answer a request
    |-- SettingError             an option or ini value is wrong (a usage error, exit code 4)
    |-- BaselineError            a baseline file cannot be used, or nothing in it can be compared
    |-- ArgumentError            a function was called with values that it cannot use; also a ValueError
    `-- SandboxError             generated code cannot be run safely on this machine

Users never see a traceback for these: items fail with the message, options end in a usage error.
"""

from __future__ import annotations

from pathlib import Path


class LLMEvalError(Exception):
    """Base class. ``str(error)`` is a complete message: place, what is wrong, and the remedy.

    ::

        try:
            registry.load(path)
        except LLMEvalError as error:
            print(error)
    """


class LLMEvalWarning(UserWarning):
    """Something in a task file works, but probably not as intended. It is an error under ``--llmeval-strict``."""


class TaskFileError(LLMEvalError):
    """A task file has a mistake; the message starts with ``file:line:column: key:``, as far as known."""

    def __init__(
        self,
        path: Path | str,
        message: str,
        *,
        line: int | None = None,
        column: int | None = None,
        key: str | None = None,
    ) -> None:
        place = ":".join(str(part) for part in (path, line, column) if part is not None)
        super().__init__(f"{place}: {message}" if key is None else f"{place}: {key}: {message}")
        self.path = Path(path)
        self.line = line
        self.key = key


class DataError(LLMEvalError):
    """A data set, one of its splits, or one of its docs is missing or unusable."""


class TemplateError(LLMEvalError):
    """A template failed on a doc; the message names task, key, field and doc."""


class ModelError(LLMEvalError):
    """A model cannot be loaded, or cannot answer a request."""


class SettingError(LLMEvalError):
    """An option, ini value or environment variable has an unusable value."""


class BaselineError(LLMEvalError):
    """A baseline file is damaged, has another format, or cannot be compared; the message names it."""

    def __init__(self, path: Path, message: str, *, line: int | None = None) -> None:
        super().__init__(f"{path}{'' if line is None else f':{line}'}: {message}")
        self.path = path


class ArgumentError(LLMEvalError, ValueError):
    """A public function was called with values that it cannot use; the message names the argument."""


class SandboxError(LLMEvalError):
    """Generated code cannot be run safely on this machine or in this session."""
