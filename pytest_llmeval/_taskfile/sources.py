"""The files that a task file uses: other YAML by ``include``, Python by ``!function module.name``.

``include`` names a file or a list of files, relative to the file with the key, with any suffix or none. A later
include wins over an earlier one, and the file's own keys win over all. Values are replaced, never merged. A file
may be included by several files; a file that includes itself is an error that prints the chain.

Like a conftest.py, a task file runs code: the module of a ``!function`` is run when the task is read. It must be a
file in the folder of the YAML that has the tag, or below it. Importable modules (``os.system``), ``..`` and links that
lead outside are refused. Each folder is a package with a name of its own, so two ``utils.py`` do not collide, and a
module imports its neighbours with ``from .other import name``.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
import types
from collections.abc import Callable
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_llmeval._errors import TaskFileError
from pytest_llmeval._plain import did_you_mean
from pytest_llmeval._taskfile.typed import read
from pytest_llmeval._taskfile.typed import texts
from pytest_llmeval._taskfile.typed import wrong
from pytest_llmeval._taskfile.yaml import FunctionRef
from pytest_llmeval._taskfile.yaml import Table
from pytest_llmeval._taskfile.yaml import Value
from pytest_llmeval._taskfile.yaml import read_yaml


class Includes:
    """Reads YAML files with everything that they include, each file once."""

    def __init__(self) -> None:
        self._tables: dict[Path, Table] = {}

    def read(self, path: Path) -> Table:
        """Return the mapping of a file with everything it includes. Raises TaskFileError."""
        return Table(path, 1, self.merge(self._read_one(path).entries, path, (path,)))

    def merge(self, entries: Mapping[str, Value], origin: Path, chain: tuple[Path, ...]) -> dict[str, Value]:
        """Return the included entries, overridden by `entries`. `chain`: the files being included, outermost first."""
        merged: dict[str, Value] = {}
        for name in read(entries, "include", texts) or ():
            include, path = entries["include"], Path(os.path.normpath(origin.parent / name))
            if path in chain:
                # The chain is shown from the file that is included again.
                files = (*chain[chain.index(path) :], path)
                names = [Path(os.path.relpath(file, chain[0].parent)).as_posix() for file in files]
                raise wrong(include, "include", f"the files include each other: {' -> '.join(names)}")
            if not path.is_file():
                raise wrong(include, "include", f"there is no file {path}")
            merged |= self.merge(self._read_one(path).entries, path, (*chain, path))
        return merged | {key: value for key, value in entries.items() if key != "include"}

    def _read_one(self, path: Path) -> Table:
        if path not in self._tables:
            self._tables[path] = read_yaml(path)
        return self._tables[path]


#: Distributions whose name differs from the name under which they are imported.
_DISTRIBUTIONS: Mapping[str, str] = {"bs4": "beautifulsoup4", "iso639": "python-iso639", "sklearn": "scikit-learn"}


class Modules:
    """Loads the functions of task files; remembers which modules failed, and the functions' source texts."""

    def __init__(self) -> None:
        self._failed: dict[Path, str] = {}
        self._sources: dict[Callable[..., Any], str] = {}

    def function(self, ref: FunctionRef, key: str) -> Callable[..., Any]:
        """Return the function that a tag names. Raises TaskFileError with the function's file, line and message."""
        module_name, _, name = ref.text.rpartition(".")
        if not all(module_name.split(".")) or not name.isidentifier():
            raise wrong(ref, key, f"expects !function module.name, got !function {ref.text}")
        folder = ref.path.parent
        file = folder.joinpath(*module_name.split(".")).with_suffix(".py")
        if not file.is_file():
            problem = f"there is no {file.relative_to(folder)} in {folder}"
            raise self._error(ref, key, f"{problem}; functions come from files in that folder or below it")
        if not file.resolve().is_relative_to(folder.resolve()):
            raise self._error(ref, key, f"{file} is a link that leads out of {folder}")
        if file in self._failed:
            raise self._error(ref, key, self._failed[file])
        try:
            module = _load(file, f"{_package(folder.resolve())}.{module_name}")
        # Any exception of the module is an error of this task only.
        except (Exception, SystemExit) as error:
            self._failed[file] = _reason(error, file)
            raise self._error(ref, key, self._failed[file]) from None
        if not hasattr(module, name):
            near = did_you_mean(name, vars(module), otherwise=".")
            raise self._error(ref, key, f"{file} defines no {name!r}{near}")
        function = getattr(module, name)
        if not callable(function):
            raise self._error(ref, key, f"{name!r} in {file} is not a function")
        return function  # type: ignore[no-any-return]

    def source(self, function: Callable[..., Any], written: str) -> str:
        """Return the source text of a function, or `written` if it has none."""
        if function not in self._sources:
            try:
                self._sources[function] = inspect.getsource(function)
            except (OSError, TypeError):
                self._sources[function] = written
        return self._sources[function]

    def _error(self, ref: FunctionRef, key: str, problem: str) -> TaskFileError:
        return wrong(ref, key, f"!function {ref.text}: {problem}")


def _package(folder: Path) -> str:
    """Register a package for a folder with the import system; return its name."""
    name = f"llmeval_tasks_{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}"
    if name not in sys.modules:
        package = types.ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules[name] = package
    return name


def _load(file: Path, name: str) -> types.ModuleType:
    """Return the module of a file under a given name: run once, and again only if the file has changed."""
    status = file.stat()
    stamp = (status.st_mtime_ns, status.st_size)
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__llmeval_stamp__", None) == stamp:
        return known
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    module.__dict__["__llmeval_stamp__"] = stamp
    # Dataclasses and pickles look their module up while it is being run.
    sys.modules[name] = module
    importlib.invalidate_caches()
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _reason(error: BaseException, file: Path) -> str:
    """Return the reason why a module cannot be loaded: its file, the line, the package to install if one is missing."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    line = error.lineno if isinstance(error, SyntaxError) else (lines[-1] if lines else None)
    place = str(file) if line is None else f"{file}:{line}"
    package = (error.name or "").split(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if package and not package.startswith("llmeval_tasks_") and importlib.util.find_spec(package) is None:
        distribution = _DISTRIBUTIONS.get(package, package.replace("_", "-"))
        return f"{place} needs the package {package!r}, which is not installed: pip install {distribution}"
    return f"{place} raised {type(error).__name__}: {error}"
