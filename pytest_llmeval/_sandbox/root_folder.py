"""The root folder in which generated code runs, almost empty, and the namespaces around it.

`build` is called once by a launcher. It moves the launcher into new user, mount, network, IPC, UTS and cgroup
namespaces whose root is a read-only tmpfs: the Python library and the system's shared libraries (bind mounts,
read-only), four devices, an empty folder. There is no /proc, no home and no active network interface. `enter` is
called once per program, in a fork: it gives the program its own process tree (PID namespace) and an empty folder of
limited size, which vanishes with the program.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from pytest_llmeval._sandbox import kernel


#: The user and group id of the program in the sandbox, whichever user runs the tests.
NOBODY = 65534

#: The folder in which the program starts, and the only one that it can write to; /tmp is a link to it.
FOLDER = "/llmeval-sandbox"

_NAMESPACES = (
    kernel.CLONE_NEWUSER
    | kernel.CLONE_NEWNS
    | kernel.CLONE_NEWNET
    | kernel.CLONE_NEWIPC
    | kernel.CLONE_NEWUTS
    | kernel.CLONE_NEWCGROUP
)

# Libraries that extension modules are linked to (Nix and Guix keep them in a store), and time zones.
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
_PIVOT = "/tmp"  # noqa: S108  (any folder that always exists: it is covered, not written to)
_OLD_ROOT = "/.outside"
_MAX_FILES = 4096


def build(libraries: Iterable[str]) -> None:
    """Move this process, which must have one thread, into a new root folder that also shows the folders `libraries`.

    Raises OSError, whose `filename` names the step that the kernel refused.
    """
    visible = _visible(libraries)
    os.umask(0o022)
    _enter_user_namespace()
    kernel.set_hostname(b"sandbox")
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    # As in bubblewrap, pivot into a tmpfs mounted over /tmp; in the old root, /tmp is then visible again.
    kernel.mount("tmpfs", _PIVOT, "tmpfs", kernel.MS_NOSUID, "size=1m,mode=755")
    os.mkdir(_PIVOT + _OLD_ROOT)
    kernel.pivot_root(_PIVOT, _PIVOT + _OLD_ROOT)
    os.chdir("/")
    os.mkdir(FOLDER)
    for target, source in visible.items():
        _bind(source, target)
        kernel.set_mount_attributes(target, kernel.MOUNT_ATTR_NODEV)
    if not os.path.lexists("/tmp"):  # noqa: S108  (Python itself may lie there)
        os.symlink(FOLDER, "/tmp")  # noqa: S108
    for name in _DEVICES:
        _bind(f"/dev/{name}", f"/dev/{name}")
    kernel.detach(_OLD_ROOT)
    os.rmdir(_OLD_ROOT)
    kernel.set_mount_attributes("/", kernel.MOUNT_ATTR_RDONLY | kernel.MOUNT_ATTR_NOSUID)


def enter(file_bytes: int) -> None:
    """Give the caller's next child process its own process tree and folder."""
    kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWPID)
    kernel.mount(
        "tmpfs",
        FOLDER,
        "tmpfs",
        kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC,
        f"size={file_bytes},nr_inodes={_MAX_FILES},mode=700,uid={NOBODY},gid={NOBODY}",
    )
    os.chdir(FOLDER)


def _visible(libraries: Iterable[str]) -> dict[str, str]:
    """Return the folders to show, as {path inside: path outside without links}; no path lies below another."""
    prefix = sys.base_prefix
    wanted = {*_SYSTEM, f"{prefix}/lib", f"{prefix}/lib64", *sys.path, *libraries}
    visible: dict[str, str] = {}
    for path in sorted(path for path in wanted if os.path.isabs(path) and os.path.exists(path)):
        if not any(path.startswith(f"{parent}/") for parent in visible):
            visible[path] = os.path.realpath(path)
    return visible


def _enter_user_namespace() -> None:
    """Enter the namespaces. Root maps all its ids, to keep access to all folders; another user becomes nobody."""
    if os.geteuid() == 0:
        _unshare_as_root()
    else:
        user, group = os.geteuid(), os.getegid()
        kernel.unshare(_NAMESPACES)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{NOBODY} {user} 1")
        _write("/proc/self/gid_map", f"{NOBODY} {group} 1")


def _unshare_as_root() -> None:
    """Enter the namespaces with all ids mapped, by a child that stays outside, since only such a process may do so."""
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
        kernel.unshare(_NAMESPACES)
        os.write(start, b"x")
    finally:
        os.close(start)
        number = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if number != 0:
        raise OSError(number, os.strerror(number), "map the users of the user namespace")


def _own_ids(path: str) -> str:
    """Return the identity map of all ids in this process's user namespace."""
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
    kernel.mount(outside, target, None, kernel.MS_BIND | kernel.MS_REC)
