"""The place where generated code runs: namespaces of its own, and a root folder with almost nothing in it.

`build` is called once by a launcher. It moves the launcher into new user, mount, network, IPC, UTS and cgroup
namespaces whose root is a read-only tmpfs: the Python library and the system's shared libraries (bind mounts,
read-only), four devices, an empty folder. There is no /proc, no home, no network interface that is up. `enter` is
called once per program, in a fork: a process tree of its own (PID namespace) and an empty, bounded folder
that vanishes with it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from pytest_llmeval._sandbox import _kernel


#: Inside, the program is this user and this group, whoever runs the tests outside.
NOBODY = 65534

#: Where the program starts, and the one place where it can write; /tmp is a link to it.
FOLDER = "/llmeval-sandbox"

_NAMESPACES = (
    _kernel.CLONE_NEWUSER
    | _kernel.CLONE_NEWNS
    | _kernel.CLONE_NEWNET
    | _kernel.CLONE_NEWIPC
    | _kernel.CLONE_NEWUTS
    | _kernel.CLONE_NEWCGROUP
)

# What extension modules are linked to (Nix and Guix keep it in a store), and time zones.
_SYSTEM = (
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/gnu/store",
    "/lib",
    "/lib64",
    "/nix/store",
    "/usr/lib",
    "/usr/lib64",
    "/usr/share/zoneinfo",
)
_DEVICES = ("null", "zero", "random", "urandom")
_PIVOT = "/tmp"  # noqa: S108  (any folder that always exists will do: it is covered, not written to)
_OLD_ROOT = "/.outside"
_MAX_FILES = 4096


def build(libraries: Iterable[str]) -> None:
    """Move this process, which must have one thread, into a room; `libraries` are folders to show besides.

    Raises OSError, its `filename` naming the step that the kernel refused.
    """
    visible = _visible(libraries)
    os.umask(0o022)
    _enter_user_namespace()
    _kernel.set_hostname(b"sandbox")
    _kernel.mount("none", "/", None, _kernel.MS_REC | _kernel.MS_PRIVATE)
    # As bubblewrap does: pivot into a tmpfs laid over /tmp. Seen from the old root, /tmp is then uncovered again.
    _kernel.mount("tmpfs", _PIVOT, "tmpfs", _kernel.MS_NOSUID, "size=1m,mode=755")
    os.mkdir(_PIVOT + _OLD_ROOT)
    _kernel.pivot_root(_PIVOT, _PIVOT + _OLD_ROOT)
    os.chdir("/")
    os.mkdir(FOLDER)
    for target, source in visible.items():
        _bind(source, target)
        _kernel.set_mount_attributes(target, _kernel.MOUNT_ATTR_NODEV)
    if not os.path.lexists("/tmp"):  # noqa: S108  (Python itself may lie there)
        os.symlink(FOLDER, "/tmp")  # noqa: S108
    for name in _DEVICES:
        _bind(f"/dev/{name}", f"/dev/{name}")
    _kernel.detach(_OLD_ROOT)
    os.rmdir(_OLD_ROOT)
    _kernel.set_mount_attributes("/", _kernel.MOUNT_ATTR_RDONLY | _kernel.MOUNT_ATTR_NOSUID)


def enter(file_bytes: int) -> None:
    """Give the caller's next child a process tree and a folder of its own."""
    _kernel.unshare(_kernel.CLONE_NEWNS | _kernel.CLONE_NEWPID)
    _kernel.mount(
        "tmpfs",
        FOLDER,
        "tmpfs",
        _kernel.MS_NOSUID | _kernel.MS_NODEV | _kernel.MS_NOEXEC,
        f"size={file_bytes},nr_inodes={_MAX_FILES},mode=700,uid={NOBODY},gid={NOBODY}",
    )
    os.chdir(FOLDER)


def _visible(libraries: Iterable[str]) -> dict[str, str]:
    """What to show inside, as {path inside: path outside without links}; no path lies below another."""
    prefix = sys.base_prefix
    wanted = {*_SYSTEM, f"{prefix}/lib", f"{prefix}/lib64", *sys.path, *libraries}
    visible: dict[str, str] = {}
    for path in sorted(path for path in wanted if os.path.isabs(path) and os.path.exists(path)):
        if not any(path.startswith(f"{parent}/") for parent in visible):
            visible[path] = os.path.realpath(path)
    return visible


def _enter_user_namespace() -> None:
    """Root maps every id it has, so that it can still reach all folders; another user maps itself to nobody."""
    if os.geteuid() == 0:
        _unshare_as_root()
    else:
        user, group = os.geteuid(), os.getegid()
        _kernel.unshare(_NAMESPACES)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{NOBODY} {user} 1")
        _write("/proc/self/gid_map", f"{NOBODY} {group} 1")


def _unshare_as_root() -> None:
    """More than one id can only be mapped by a process that stayed outside: a child that waits for its turn."""
    users, groups = _own_ids("/proc/self/uid_map"), _own_ids("/proc/self/gid_map")
    launcher = os.getpid()
    turn, start = os.pipe()
    child = os.fork()
    if child == 0:
        number = 0
        try:
            os.close(start)
            if os.read(turn, 1):
                _write(f"/proc/{launcher}/uid_map", users)
                _write(f"/proc/{launcher}/gid_map", groups)
        except OSError as error:
            number = error.errno or 1
        finally:
            os._exit(number)
    os.close(turn)
    try:
        _kernel.unshare(_NAMESPACES)
        os.write(start, b"x")
    finally:
        os.close(start)
        number = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if number != 0:
        raise OSError(number, os.strerror(number), "map the users of the user namespace")


def _own_ids(path: str) -> str:
    """All ids of this process's user namespace, each mapped to itself."""
    with open(path) as lines:
        rows = [line.split() for line in lines]
    return "".join(f"{inside} {inside} {count}\n" for inside, _, count in rows)


def _write(path: str, text: str) -> None:
    try:
        with open(path, "w") as file:
            file.write(text)
    except OSError as error:
        raise OSError(error.errno, error.strerror, f"write {path}") from None


def _bind(source: str, target: str) -> None:
    outside = _OLD_ROOT + source
    if os.path.isdir(outside):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY))
    _kernel.mount(outside, target, None, _kernel.MS_BIND | _kernel.MS_REC)
