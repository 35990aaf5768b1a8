"""Where there can be no sandbox, nothing is run, and the message says why and what to do."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_llmeval import _sandbox
from pytest_llmeval._errors import SandboxError
from pytest_llmeval._sandbox import Worker
from pytest_llmeval._sandbox import kernel
from pytest_llmeval._sandbox import worker as worker_module


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="simulates refusals of a Linux kernel")

REFUSED = "generated code cannot be run safely here, so it is not run: "
ADVICE = [
    "Linux 5.12",
    "run as root",
    "user.max_user_namespaces",
    "apparmor_restrict_unprivileged_userns",
    "docker run",
]


def assert_refused(reason: str) -> None:
    """Every way in refuses with the same message."""
    for attempt in (
        lambda: _sandbox.run_code("raise SystemExit"),
        Worker,
    ):
        with pytest.raises(SandboxError) as caught:
            attempt()
        assert str(caught.value).startswith(REFUSED + reason)
    told = _sandbox.available()
    assert told is not None
    assert told.startswith(REFUSED + reason)
    assert all(words in told for words in ADVICE)


@pytest.mark.parametrize(("system", "name"), [("darwin", "Darwin"), ("win32", "Windows")])
def test_other_systems(monkeypatch: pytest.MonkeyPatch, system: str, name: str) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "system", lambda: name)
    assert_refused(f"this is {name}, which has no namespaces. ")


def test_other_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert_refused("there is no system call filter for riscv64. ")


def test_launcher_that_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "_command", lambda: [sys.executable, "-c", "exit('no such library')"])
    assert_refused("its launcher ended with status 1 (no such library). ")


def test_launcher_that_cannot_be_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(worker_module, "_command", lambda: [str(tmp_path / "python")])
    assert_refused(f"its launcher cannot be started: [Errno 2] No such file or directory: '{tmp_path}/python'. ")


def test_launcher_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "_command", lambda: [sys.executable, "-c", "input()"])
    monkeypatch.setattr(worker_module, "_PATIENCE_SECONDS", 0.01)
    assert_refused("its launcher did not answer for 0.01 s. ")


def test_kernel_without_user_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real refusal: in a user namespace whose own limit of further ones is 0."""
    forbid = f"""
import ctypes, os, sys
user, group = os.getuid(), os.getgid()
if ctypes.CDLL(None).unshare({kernel.CLONE_NEWUSER}):
    raise SystemExit("skip")
for name, text in (("setgroups", "deny"), ("uid_map", f"0 {{user}} 1"), ("gid_map", f"0 {{group}} 1")):
    open(f"/proc/self/{{name}}", "w").write(text)
open("/proc/sys/user/max_user_namespaces", "w").write("0")
os.execv(sys.argv[1], sys.argv[1:])
"""
    command = [sys.executable, "-c", forbid, *worker_module._command()]
    if subprocess.run([*command[:3], "/bin/true"], capture_output=True).returncode != 0:
        pytest.skip("this kernel has no user namespace to forbid them in")
    monkeypatch.setattr(worker_module, "_command", lambda: command)
    assert_refused("[Errno 28] No space left on device: 'unshare namespaces'. ")


@pytest.mark.parametrize("step", ["unshare", "mount", "pivot_root", "set_mount_attributes", "set_hostname", "detach"])
def test_every_step_into_the_room_is_checked(step: str) -> None:
    """The launcher, with one call of its kernel refused, says so and ends before it has read a program."""
    start = worker_module._BOOT.replace(
        "from pytest_llmeval._sandbox.launcher import main",
        "from pytest_llmeval._sandbox.launcher import main, kernel\n"
        f"def refuse(*arguments): raise PermissionError(1, 'Operation not permitted', {step!r})\n"
        f"kernel.{step} = refuse",
    )
    command = [*worker_module._command()[:5], start, *worker_module._command()[6:]]
    request = json.dumps({"program": "x = 1", "limits": {}})
    done = subprocess.run(command, input=request, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    if step != "unshare" and "unshare" in str(answers):
        pytest.skip(str(answers))
    assert answers == [{"error": f"[Errno 1] Operation not permitted: '{step}'"}]


@pytest.mark.parametrize(
    "step", ["renounce_capabilities", "drop_capabilities", "install_filter", "prctl", "unshare", "mount"]
)
def test_every_step_of_giving_up_rights_is_checked(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """A program that could not be confined is not run, and that is an error, not a wrong answer."""
    if reason := _sandbox.available():
        pytest.skip(reason)
    start = worker_module._BOOT.replace(
        "main(sys",
        "from pytest_llmeval._sandbox import kernel, launcher\n"
        "build = launcher.root_folder.build\n"
        "def refuse(*arguments): raise PermissionError(1, 'Operation not permitted', 'step')\n"
        f"def build_then_refuse(libraries): build(libraries); kernel.{step} = refuse\n"
        "launcher.root_folder.build = build_then_refuse\n"
        "main(sys",
    )
    monkeypatch.setattr(worker_module, "_BOOT", start)
    with Worker() as worker, pytest.raises(SandboxError) as caught:
        worker.run("x = 1")
    assert str(caught.value).startswith(f"{REFUSED}[Errno 1] Operation not permitted: 'step'. ")


def test_walls_that_do_not_hold_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trial in `available` sees a sandbox from which a wall is missing."""
    if reason := _sandbox.available():
        pytest.skip(reason)
    monkeypatch.setattr(
        worker_module,
        "_BOOT",
        worker_module._BOOT.replace(
            "main(sys",
            "from pytest_llmeval._sandbox import kernel\nkernel.install_filter = lambda filter: None\nmain(sys",
        ),
    )
    told = _sandbox.available()
    assert told is not None
    assert told.startswith(
        f"{REFUSED}a trial in the sandbox failed: AssertionError: it can fork, connect, write or start a program"
    )
