"""Programs that hang, flood, fork, delete, spy and call home: none gets anywhere, and none of them passes."""

from __future__ import annotations

import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_llmeval import _sandbox
from pytest_llmeval._errors import SandboxError
from pytest_llmeval._sandbox import CodeLimits
from pytest_llmeval._sandbox import CodeOutcome
from pytest_llmeval._sandbox import Worker
from pytest_llmeval._sandbox import worker as worker_module


NOBODY = 65534
PACKAGE = Path(_sandbox.__file__).parent

#: For programs that wait: they are stopped by the clock.
SHORT = CodeLimits(wall_seconds=1.0, cpu_seconds=60)

#: Ends in an error that shows a value, to look at the inside.
SHOW = "\nraise SystemExit(repr(value))"


def as_nobody(command: list[str]) -> list[str]:
    """The command run by a user without any right, by way of a Python that still has them."""
    become = (
        f"import os, sys; os.setgroups([{NOBODY}]); os.setgid({NOBODY}); os.setuid({NOBODY}); "
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    return [sys.executable, "-c", become, *command]


def skip_where_refused() -> None:
    """Skip where the kernel refuses. A sandbox that starts and has a wall missing is no reason to skip."""
    if reason := _sandbox.available():
        assert "a trial in the sandbox" not in reason
        pytest.skip(reason)


@pytest.fixture(scope="module")
def public_package() -> Iterator[Path]:
    """A copy of the sandbox that every user can read, laid out as in the package."""
    folder = Path(tempfile.mkdtemp(prefix="llmeval-sandbox-test-"))
    shutil.copytree(PACKAGE, folder / "_sandbox", ignore=shutil.ignore_patterns("__pycache__"))
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module", params=["this user", "an ordinary user"])
def worker(request: pytest.FixtureRequest) -> Iterator[Worker]:
    """A launcher of the user who runs the tests, and, where that is root, one of an ordinary user besides."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "an ordinary user":
            if os.name != "posix" or os.geteuid() != 0:
                pytest.skip("the tests are not run by root, so 'this user' is the ordinary one")
            package: Path = request.getfixturevalue("public_package")
            command = as_nobody([*public_python(), "-s", "-P", "-S", "-c", worker_module._BOOT, str(package)])
            patch.setattr(worker_module, "_command", lambda: command)
        skip_where_refused()
        with Worker() as worker:
            yield worker


def public_python() -> list[str]:
    """A Python of this version or later that an ordinary user can start."""
    check = ["-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
    for python in (sys.executable, "/usr/bin/python3"):
        if Path(python).exists() and subprocess.run(as_nobody([python, *check]), capture_output=True).returncode == 0:
            return [python]
    pytest.skip("an ordinary user has no Python 3.11 here")


def shown(outcome: CodeOutcome) -> str:
    """The value that a program ending in SHOW saw."""
    found = re.fullmatch(r"failed: SystemExit: (.*) \(line \d+\)", outcome.reason)
    assert found, outcome
    return found[1]


# What a program's end means


@pytest.mark.parametrize(
    "program",
    [
        "",
        "assert 1 + 1 == 2",
        "é = '日本\\U0001f40d'\nassert len(é) == 3",
        "from typing import List\ndef f(x: List[int]) -> int:\n    return sum(x)\nassert f([1, 2]) == 3",
        "try:\n    raise SystemExit\nexcept SystemExit:\n    pass",
        "import threading\nevent = threading.Event()\nthreading.Thread(target=event.wait).start()",
        "import asyncio\nasync def f(): return 3\nassert asyncio.run(f()) == 3",
        "from concurrent.futures import ThreadPoolExecutor as T\nassert list(T(4).map(abs, [-1, 2])) == [1, 2]",
        "import os\nos.write = os._exit = os.read = exec = str = type = None",
        "import builtins\nbuiltins.exec = builtins.BaseException = None",
        "if __name__ == '__main__':\n    raise SystemExit('not run as a script, as in the published harness')",
    ],
)
def test_program_that_reaches_its_end_passes(worker: Worker, program: str) -> None:
    assert worker.run(program) == CodeOutcome(True, "passed")


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("assert 1 == 2", "failed: AssertionError (line 1)"),
        ("\nassert 1 == 2, 'sums'", "failed: AssertionError: sums (line 2)"),
        ("def f():\n    return g()\n\nf()", "failed: NameError: name 'g' is not defined (line 2)"),
        ("def f(:", "failed: SyntaxError: invalid syntax (<program>, line 1)"),
        ("import sys\nsys.exit()", "failed: SystemExit (line 2)"),
        ("import sys\nsys.exit(0)", "failed: SystemExit: 0 (line 2)"),
        ("exit()", "failed: NameError: name 'exit' is not defined (line 1)"),
        ("raise KeyboardInterrupt", "failed: KeyboardInterrupt (line 1)"),
        ("input()", "failed: EOFError: EOF when reading a line (line 1)"),
        ("import os\nos._exit(0)", "failed: exited with status 0 before its end"),
        ("import os\nos._exit(7)", "failed: exited with status 7 before its end"),
        ("import ctypes\nctypes.string_at(0)", "failed: killed by SIGSEGV"),
        ("raise ValueError('a\\n\\x1b[31mred\\x00')", "failed: ValueError: a\\n\\x1b[31mred\\x00 (line 1)"),
        (
            "class E(Exception):\n    def __str__(self): raise self\nraise E",
            "failed: an exception that cannot be shown",
        ),
    ],
)
def test_any_other_end_fails_and_says_why(worker: Worker, program: str, reason: str) -> None:
    assert worker.run(program) == CodeOutcome(False, reason)


@pytest.mark.parametrize("text", ["x = '\ud800'", "x = '\0'"])
def test_text_that_is_no_python_source_fails(worker: Worker, text: str) -> None:
    assert not worker.run(text).passed


def test_long_message_is_cut(worker: Worker) -> None:
    assert len(worker.run("raise ValueError('x' * 10**6)").reason) < 600


@pytest.mark.parametrize(
    "attempt",
    [
        "print('passed', flush=True)",
        "import json, sys\nsys.stderr.write(json.dumps({'passed': True, 'reason': 'passed'}) + '\\n')",
        "import os\nfor file in range(256):\n    try:\n        os.write(file, b'passed')\n"
        "    except OSError:\n        pass",
        "import os\nfor file in range(256):\n    try:\n        os.write(file, os.urandom(16))\n"
        "    except OSError:\n        pass",
        "import threading, os\nthreading.Thread(target=lambda: (print('passed'), os._exit(0))).start()",
    ],
)
def test_pretended_success_fails(worker: Worker, attempt: str) -> None:
    assert not worker.run(f"{attempt}\nassert False").passed
    assert not worker.run(f"{attempt}\nimport os\nos._exit(0)").passed


def test_runs_are_independent(worker: Worker) -> None:
    worker.run("import builtins, sys, os\nbuiltins.len = None\nsys.modules.clear()\nos.environ['LEFT'] = 'x'")
    worker.run("open('left', 'w').close()\nimport os\nos._exit(1)")
    assert worker.run("import os\nassert len(os.listdir()) == 0 and 'LEFT' not in os.environ").passed


def test_verdicts_do_not_depend_on_the_order_of_sets(worker: Worker) -> None:
    program = "value = ''.join({'a', 'b', 'c', 'd', 'e', 'f', 'g'})" + SHOW
    with Worker() as other:
        assert shown(other.run(program)) == shown(worker.run(program))


# Limits


@pytest.mark.parametrize(
    ("program", "limits", "reason"),
    [
        ("while True: pass", CodeLimits(cpu_seconds=1), "timed out after 1 s of processor time"),
        ("import time\ntime.sleep(1000)", SHORT, "timed out after 1 s"),
        ("while True: print('x' * 100_000)", SHORT, "timed out after 1 s"),
        ("import os\nwhile True: os.write(2, b'x' * 100_000)", SHORT, "timed out after 1 s"),
        ("import os, time\nos.closerange(0, 256)\ntime.sleep(1000)", SHORT, "timed out after 1 s"),
        ("import threading\nthreading.Lock().acquire()\nthreading.Event().wait()", SHORT, "timed out after 1 s"),
        ("x = 'x' * (1 << 40)", CodeLimits(), "out of memory"),
        ("x = []\nwhile True: x.append(bytes(1 << 26))", CodeLimits(memory_bytes=300 << 20), "out of memory"),
        ("x = []\nwhile True: x.append(x[:] + ['y'] * 10_000)", CodeLimits(memory_bytes=200 << 20), "out of memory"),
    ],
)
def test_endless_and_boundless_programs_are_stopped(
    worker: Worker, program: str, limits: CodeLimits, reason: str
) -> None:
    assert worker.run(program, limits) == CodeOutcome(False, reason)


def test_fork_bomb_cannot_start(worker: Worker) -> None:
    assert worker.run("import os\nwhile True: os.fork()").reason == (
        "failed: OSError: [Errno 38] Function not implemented (line 2)"
    )


def test_threads_are_counted(worker: Worker) -> None:
    program = """
import threading
event, value = threading.Event(), 1
try:
    while True:
        threading.Thread(target=event.wait).start()
        value += 1
except RuntimeError:
    pass
"""
    assert shown(worker.run(program + SHOW, CodeLimits(threads=10))) == "10"
    assert shown(worker.run(program + SHOW, CodeLimits(threads=50))) == "50"


@pytest.mark.parametrize(
    "program",
    [
        "file = open('x', 'wb')\nwhile True: file.write(bytes(1 << 16))",
        "n = 0\nwhile True:\n    open(str(n), 'wb').write(bytes(1 << 18))\n    n += 1",
        "import os\nos.posix_fallocate(os.open('x', os.O_CREAT | os.O_RDWR), 0, 1 << 30)",
        "import os\nos.truncate(os.open('x', os.O_CREAT | os.O_RDWR), 1 << 30)",
        "n = 0\nwhile True:\n    open(str(n), 'wb').close()\n    n += 1",
        "import os\nwhile True:\n    os.mkdir('d')\n    os.chdir('d')",
        "import os\nkept = [os.pipe() for _ in range(1000)]",
    ],
)
def test_files_are_bounded(worker: Worker, program: str) -> None:
    outcome = worker.run(program, CodeLimits(file_bytes=1 << 20))
    assert re.match(r"failed: OSError: \[Errno (27|28|24)\] ", outcome.reason), outcome


# Walls


@pytest.mark.parametrize(
    "program",
    [
        "import os\nassert os.listdir() == []\nopen('x', 'w').write('y')\nassert open('x').read() == 'y'",
        "import tempfile\nwith tempfile.NamedTemporaryFile() as file: file.write(b'x')",
        pytest.param(
            "import os\nos.mkdir('/tmp/d')\nassert os.listdir() == ['d']",
            marks=pytest.mark.skipif(
                Path(sys.prefix).is_relative_to("/tmp"), reason="Python itself lies in /tmp, which is then read-only"
            ),
        ),
    ],
)
def test_its_folder_is_empty_writable_and_gone_afterwards(worker: Worker, program: str) -> None:
    before = set(Path(tempfile.gettempdir()).iterdir())
    for _ in range(2):
        assert worker.run(program) == CodeOutcome(True, "passed")
    assert not {path for path in set(Path(tempfile.gettempdir()).iterdir()) - before if path.name == "d"}


@pytest.fixture
def victim() -> Iterator[Path]:
    """A file that everybody may read, write and delete."""
    folder = Path(tempfile.mkdtemp(prefix="llmeval-sandbox-test-"))
    path = folder / "victim"
    path.write_text("unharmed")
    path.chmod(0o666)
    folder.chmod(0o777)
    yield path
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    "attempt",
    [
        "os.remove(path)",
        "shutil.rmtree(os.path.dirname(path))",
        "open(path, 'w')",
        "open(path)",
        "os.symlink(path, 'link'); open('link', 'a')",
        "os.link(path, 'link')",
        "os.rename(path, 'mine')",
        "open('../../..' + path, 'w')",
        "open('/.outside' + path, 'w')",
        "open('/proc/1/root' + path, 'w')",
        "os.chroot('.')",
        "os.chmod(path, 0)",
    ],
)
def test_files_outside_are_out_of_reach(worker: Worker, victim: Path, attempt: str) -> None:
    outcome = worker.run(f"import os, shutil\npath = {str(victim)!r}\n{attempt}")
    assert outcome.reason.startswith(("failed: FileNotFoundError", "failed: OSError: [Errno 38]")), outcome
    assert victim.read_text() == "unharmed"
    assert os.listdir(victim.parent) == ["victim"]


def test_open_files_are_not_inherited(worker: Worker, victim: Path) -> None:
    file = os.open(victim, os.O_RDWR)
    os.set_inheritable(file, True)
    try:
        with Worker() as heir:
            program = (
                "import os\nvalue = []\nfor file in range(4096):\n    try:\n        value.append(os.fstat(file))\n"
            )
            program += "        os.write(file, b'x')\n    except OSError:\n        pass\nvalue = len(value)"
            # Three streams that lead nowhere, two pipes of the runner.
            assert not heir.run(program).passed
            assert shown(heir.run(program.replace("os.write(file, b'x')", "pass") + SHOW)) == "5"
    finally:
        os.close(file)
    assert victim.read_text() == "unharmed"


@pytest.mark.parametrize("folder", ["/proc", "/sys", "/home", "/var", "/run", "/boot", "/opt", "/mnt", "/etc/ssh"])
def test_nothing_of_the_machine_is_seen(worker: Worker, folder: str) -> None:
    prefixes = {path for path in (sys.prefix, sys.base_prefix) if path.startswith(folder)}
    if prefixes:
        pytest.skip(f"Python itself lies in {folder}")
    assert worker.run(f"import os\nassert not os.path.exists({folder!r})").passed


def test_home_of_the_user_is_not_seen(worker: Worker) -> None:
    hidden = [str(Path.home() / name) for name in (".ssh", ".bashrc", ".profile", ".netrc", ".cache")]
    assert worker.run(f"import os\nassert not any(os.path.exists(path) for path in {hidden!r})").passed
    assert worker.run("import os\nassert os.path.expanduser('~') == '~'").passed


def test_the_tests_own_code_is_not_seen(worker: Worker) -> None:
    assert worker.run(f"import os\nassert not os.path.exists({str(Path(__file__).parents[2] / 'tests')!r})").passed


@pytest.mark.parametrize(
    "path", ["/x", "/usr/lib/x", "/lib/x", "/dev/x", "/etc/x", os.path.dirname(os.__file__) + "/x", os.__file__]
)
def test_only_its_folder_is_writable(worker: Worker, path: str) -> None:
    outcome = worker.run(f"open({path!r}, 'w')")
    assert re.match(r"failed: (OSError: \[Errno 30\]|PermissionError|FileNotFoundError)", outcome.reason), outcome


def test_environment_is_empty(monkeypatch: pytest.MonkeyPatch, worker: Worker) -> None:
    monkeypatch.setenv("LLMEVAL_TEST_SECRET", "the-secret")
    spy = """
import ctypes, glob, os
value = [open(path, "rb").read() for path in glob.glob("/proc/*/environ")] + [str(os.environ)]
getenv = ctypes.CDLL(None).getenv
getenv.restype = ctypes.c_char_p
value.append(getenv(b"LLMEVAL_TEST_SECRET"))
for name in ("/proc/self/environ", "/proc/1/environ", f"/proc/{os.getppid()}/environ"):
    assert not os.path.exists(name)
"""
    with Worker() as started_with_secret:
        assert shown(started_with_secret.run(spy + SHOW)) == "[\"environ({'OMP_NUM_THREADS': '1'})\", None]"


def test_network_is_out_of_reach(worker: Worker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        port = server.getsockname()[1]
        for program in (
            f"import socket\nsocket.create_connection(('127.0.0.1', {port}), timeout=1)",
            f"import urllib.request\nurllib.request.urlopen('http://127.0.0.1:{port}', timeout=1)",
            "import socket\nsocket.socket(socket.AF_UNIX)",
            "import socket\nsocket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
            "import ctypes\nassert ctypes.CDLL(None).socket(2, 1, 0) >= 0",
        ):
            assert not worker.run(program).passed
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.mark.parametrize(
    "program",
    [
        "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)",
        "import os, signal\nos.kill(0, signal.SIGKILL)",
        "import os, signal\nos.killpg(0, signal.SIGTERM)",
        "import os, signal\nos.kill(-1, signal.SIGKILL)",
        "import os, signal\nfor pid in range(2, 100_000):\n    try:\n        os.kill(pid, signal.SIGKILL)\n"
        "    except ProcessLookupError:\n        continue\n    raise SystemExit(pid)",
    ],
)
def test_signals_reach_nobody(worker: Worker, program: str) -> None:
    bystander = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    worker.run(program)
    assert worker.run("x = 1").passed
    assert bystander.poll() is None
    bystander.communicate(b"\n")
    assert bystander.returncode == 0


@pytest.mark.parametrize(
    "call",
    [
        "fork()",
        "vfork()",
        "execve(b'/usr/lib', None, None)",
        "unshare(0x10000000)",
        "setns(0, 0)",
        "mount(b'none', b'/tmp', b'tmpfs', 0, None)",
        "umount2(b'/', 2)",
        "chroot(b'/')",
        "ptrace(0, 0, None, None)",
        "setuid(0)",
        "setgid(0)",
        "setresuid(0, 0, 0)",
        "prctl(38, 0, 0, 0, 0)",
        "personality(0)",
        "memfd_create(b'x', 0)",
        "shmget(0, 4096, 0o1600)",
        "msgget(0, 0o1600)",
        "inotify_init()",
        "socket(1, 1, 0)",
        "syscall(435, None, 0)",  # clone3
        "syscall(425, 1, None)",  # io_uring_setup
        "syscall(428, -100, b'/', 0)",  # open_tree
        "syscall(434, 1, 0)",  # pidfd_open
        "syscall(100_000)",
    ],
)
def test_dangerous_calls_do_not_exist(worker: Worker, call: str) -> None:
    program = f"import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nvalue = (libc.{call}, ctypes.get_errno())"
    assert shown(worker.run(program + SHOW)) == "(-1, 38)"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="machine code of x86_64")
def test_calls_by_the_32_bit_gate_are_fatal(worker: Worker) -> None:
    program = """
import ctypes, mmap
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(bytes.fromhex("b814000000cd80c3"))  # mov eax, 20 (getpid); int 0x80; ret
value = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
"""
    # Where the kernel has no 32-bit calls at all, the gate itself is a fault.
    assert worker.run(program).reason in ("failed: killed by SIGSYS", "failed: killed by SIGSEGV")


@pytest.mark.parametrize(
    "program",
    [
        "import subprocess\nsubprocess.run(['ls'])",
        "import os\nos.system('true') and 1 / 0",
        "import os\nos.posix_spawn('/bin/true', ['true'], {})",
        "import multiprocessing\nmultiprocessing.get_context('fork').Process(target=print).start()",
        "import pty\npty.fork()",
    ],
)
def test_no_other_program_can_be_started(worker: Worker, program: str) -> None:
    assert not worker.run(program).passed


def test_it_is_nobody_and_alone(worker: Worker) -> None:
    program = """
import os
value = (os.getpid(), os.getppid(), os.getresuid(), os.getresgid(), set(os.getgroups()) <= {65534}, os.uname().nodename,
         sorted(os.listdir("/dev")))
"""
    assert shown(worker.run(program + SHOW)) == str(
        (1, 0, (NOBODY,) * 3, (NOBODY,) * 3, True, "sandbox", ["null", "random", "urandom", "zero"])
    )


def test_devices_work(worker: Worker) -> None:
    assert worker.run(
        "open('/dev/null', 'w').write('x')\nassert open('/dev/zero', 'rb').read(2) == bytes(2)\n"
        "assert len(open('/dev/urandom', 'rb').read(2)) == 2"
    ).passed


def test_umask_of_the_tests_does_not_matter(worker: Worker) -> None:
    before = os.umask(0o077)
    try:
        with Worker() as other:
            assert other.run("import wave") == CodeOutcome(True, "passed")
    finally:
        os.umask(before)


# The walls one by one: what holds without the system call filter, and what without the loss of rights

JUDGE_WITHOUT_FILTER = """
from pytest_llmeval._sandbox import kernel, launcher, limits, root_folder, trial
kernel.install_filter = lambda seccomp: None
root_folder.build([])
import os
if os.fork():
    os.wait()
    sys.exit()
root_folder.enter(1 << 20)
outcome = trial.judge({program!r}, limits.CodeLimits(**{limits!r}), lambda: launcher._give_up_rights(b""))
print(outcome.reason)
"""


@pytest.fixture(params=["this user", "an ordinary user"])
def package(request: pytest.FixtureRequest) -> Path | None:
    """None for this user; for an ordinary one, where the package lies that one can read."""
    if request.param == "this user":
        skip_where_refused()
        return None
    if os.name != "posix" or os.geteuid() != 0:
        pytest.skip("the tests are not run by root, so 'this user' is the ordinary one")
    path: Path = request.getfixturevalue("public_package")
    return path


def printed(code: str, package: Path | None) -> str:
    """What code prints that is run as a launcher starts."""
    start = worker_module._BOOT.partition("from pytest_llmeval._sandbox.launcher")[0] + code
    python = [sys.executable] if package is None else public_python()
    command = [*python, "-s", "-P", "-S", "-c", start, str(package or PACKAGE.parent)]
    command = command if package is None else as_nobody(command)
    return subprocess.run(command, capture_output=True, text=True, check=True, env={}).stdout.strip()


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("import os\nos.setuid(0)", r"(PermissionError|OSError: \[Errno 22\]).*"),
        ("import os\nos.chroot('.')", r"PermissionError.*"),
        ("import socket\nsocket.create_connection(('127.0.0.1', 22))", r"OSError: \[Errno 101\].*"),
        ("import socket\nraise ValueError(socket.if_nameindex())", r"ValueError: \[\(1, 'lo'\)\].*"),
        ("import os\nos.kill(os.getppid(), 9)\nos.kill(1, 9)\nraise ValueError('alive')", r"ValueError: alive.*"),
        ("import os\nos.execv('/usr/bin/true', ['true'])", r"FileNotFoundError.*"),
        ("open('/x', 'w')", r"OSError: \[Errno 30\].*"),
    ],
)
def test_walls_hold_without_the_filter(package: Path | None, program: str, reason: str) -> None:
    outcome = printed(JUDGE_WITHOUT_FILTER.format(program=program, limits={}), package)
    assert re.fullmatch(f"failed: {reason}", outcome), outcome


def test_fork_bomb_is_bounded_without_the_filter(package: Path | None) -> None:
    program = """
import os, time
count = 1
try:
    while True:
        if os.fork() == 0:
            time.sleep(1000)
        count += 1
except BlockingIOError:
    raise ValueError(count)
"""
    outcome = printed(JUDGE_WITHOUT_FILTER.format(program=program, limits={"threads": 20}), package)
    assert outcome == "failed: ValueError: 20 (line 10)"


def test_no_capability_is_left_and_none_can_be_had(package: Path | None) -> None:
    program = """
import ctypes
libc = ctypes.CDLL(None)
header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)(*[1] * 6)
libc.capget(header, data)
PR_CAPBSET_READ, PR_GET_NO_NEW_PRIVS, PR_GET_DUMPABLE = 23, 39, 3
raise ValueError(list(data), sum(libc.prctl(PR_CAPBSET_READ, number, 0, 0, 0) for number in range(36)),
                 libc.prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), libc.prctl(PR_GET_DUMPABLE, 0, 0, 0, 0))
"""
    outcome = printed(JUDGE_WITHOUT_FILTER.format(program=program, limits={}), package)
    assert outcome == "failed: ValueError: ([0, 0, 0, 0, 0, 0], 0, 1, 0) (line 7)"


def test_a_launcher_itself_can_write_nowhere(package: Path | None) -> None:
    code = """
import os
from pytest_llmeval._sandbox import root_folder
root_folder.build([])
for path in ("/x", "/usr/lib/x", "/dev/x", os.__file__, "/etc/ld.so.cache"):
    try:
        open(path, "a")
        print(path)
    except OSError as error:
        assert error.errno in (30, 13, 2), error
print(os.path.exists("/.outside"), os.path.exists("/proc/1"))
"""
    assert printed(code, package) == "False False"


# Workers


def test_a_worker_that_dies_is_an_error_not_a_verdict(worker: Worker) -> None:
    with Worker() as doomed:
        doomed._process.kill()
        doomed._process.wait()
        with pytest.raises(SandboxError, match="its launcher ended with status -9"):
            doomed.run("x = 1")


def test_an_answer_that_comes_late_is_not_taken_for_another(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    with Worker() as hasty:
        with monkeypatch.context() as patch:
            patch.setattr(worker_module, "_PATIENCE_SECONDS", -0.9)
            with pytest.raises(SandboxError, match="its launcher did not answer for"):
                hasty.run("import time\ntime.sleep(1000)", SHORT)
        with pytest.raises(SandboxError, match="its launcher ended with status -9"):
            hasty.run("x = 1")


def test_what_runs_dies_with_its_worker() -> None:
    skip_where_refused()
    ended: list[SandboxError] = []

    def run(worker: Worker) -> None:
        try:
            worker.run("import time\ntime.sleep(1000)", CodeLimits(wall_seconds=100))
        except SandboxError as error:
            ended.append(error)

    with Worker() as worker:
        thread = threading.Thread(target=run, args=[worker], daemon=True)
        thread.start()
        launcher = worker._process.pid
        until(lambda: len(descendants(launcher)) == 2)
        watcher, program = descendants(launcher)
        worker._process.kill()
        thread.join(60)
        until(lambda: not any(Path(f"/proc/{process}/ns/pid").exists() for process in (watcher, program)))
    assert len(ended) == 1


def descendants(process: int) -> list[int]:
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [found for child in children for found in (int(child), *descendants(int(child)))]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        os.sched_yield()
