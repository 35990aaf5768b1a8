"""``!function module.name``: the Python code of a task.

Task YAML is code as a conftest is: the module is run when the task is read. But it can only be a file in the folder
of the YAML that carries the tag, or below it. No importable module (``os.system``), no ``..``, no link that leads
out. Each folder is a package of its own name, so two ``utils.py`` never meet, and a module finds its neighbours
with ``from .other import name``.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
import traceback
import types
from collections.abc import Callable
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_llmeval._plain import did_you_mean
from pytest_llmeval._taskfile.typed import wrong
from pytest_llmeval._taskfile.yaml import FunctionRef


#: Import names whose distribution is called otherwise.
_DISTRIBUTIONS: Mapping[str, str] = {"bs4": "beautifulsoup4", "iso639": "python-iso639", "sklearn": "scikit-learn"}


class Modules:
    """Loads functions, and remembers which modules failed and what the sources are."""

    def __init__(self) -> None:
        self._failed: dict[Path, str] = {}
        self._sources: dict[Callable[..., Any], str] = {}

    def function(self, ref: FunctionRef, key: str) -> Callable[..., Any]:
        """What a tag refers to. Raises TaskFileError with the function's file, line and message."""
        module_name, _, name = ref.text.rpartition(".")
        if not all(module_name.split(".")) or not name.isidentifier():
            raise wrong(ref, key, f"expects !function module.name, got !function {ref.text}")
        file = self._file(ref, module_name, key)
        module = self._module(file, module_name, ref, key)
        if not hasattr(module, name):
            near = did_you_mean(name, vars(module), otherwise=".")
            raise wrong(ref, key, f"!function {ref.text}: {file} defines no {name!r}{near}")
        function = getattr(module, name)
        if not callable(function):
            raise wrong(ref, key, f"!function {ref.text}: {name!r} in {file} is not a function")
        return function  # type: ignore[no-any-return]

    def source(self, function: Callable[..., Any], written: str) -> str:
        """The source text of a function, or what was `written` where it has none."""
        if function not in self._sources:
            try:
                self._sources[function] = inspect.getsource(function)
            except (OSError, TypeError):
                self._sources[function] = written
        return self._sources[function]

    def _file(self, ref: FunctionRef, module_name: str, key: str) -> Path:
        folder = ref.path.parent
        file = folder.joinpath(*module_name.split(".")).with_suffix(".py")
        if not file.is_file():
            message = f"!function {ref.text}: there is no {file.relative_to(folder)} in {folder}"
            raise wrong(ref, key, f"{message}; functions come from files in that folder or below it")
        if not file.resolve().is_relative_to(folder.resolve()):
            raise wrong(ref, key, f"!function {ref.text}: {file} is a link that leads out of {folder}")
        return file

    def _module(self, file: Path, module_name: str, ref: FunctionRef, key: str) -> types.ModuleType:
        try:
            if file not in self._failed:
                return _load(file, f"{_package(ref.path.parent.resolve())}.{module_name}")
        # Whatever a module does while it is run, it ends this task only.
        except (Exception, SystemExit) as error:
            self._failed[file] = _reason(error, file)
        raise wrong(ref, key, f"!function {ref.text}: {self._failed[file]}")


def _package(folder: Path) -> str:
    """The name of the package that stands for a folder; made known to the import system."""
    name = f"llmeval_tasks_{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}"
    if name not in sys.modules:
        package = types.ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules[name] = package
    return name


def _load(file: Path, name: str) -> types.ModuleType:
    """The module of a file under a given name: run once, and again only if the file has changed."""
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
    """Why a module cannot be loaded: its file, the line, and the package to install if one is missing."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    line = error.lineno if isinstance(error, SyntaxError) else (lines[-1] if lines else None)
    place = str(file) if line is None else f"{file}:{line}"
    package = (error.name or "").split(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if package and not package.startswith("llmeval_tasks_") and importlib.util.find_spec(package) is None:
        distribution = _DISTRIBUTIONS.get(package, package.replace("_", "-"))
        return f"{place} needs the package {package!r}, which is not installed: pip install {distribution}"
    return f"{place} raised {type(error).__name__}: {error}"
