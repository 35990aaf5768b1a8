"""Linux system calls that Python does not provide, through libc. Each raises OSError with the name of the call.

Only launchers import this module.
"""

from __future__ import annotations

import ctypes
import errno
import os


CLONE_NEWNS = 0x0002_0000
CLONE_NEWCGROUP = 0x0200_0000
CLONE_NEWUTS = 0x0400_0000
CLONE_NEWIPC = 0x0800_0000
CLONE_NEWUSER = 0x1000_0000
CLONE_NEWPID = 0x2000_0000
CLONE_NEWNET = 0x4000_0000

MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x4_0000

MOUNT_ATTR_RDONLY = 0x1
MOUNT_ATTR_NOSUID = 0x2
MOUNT_ATTR_NODEV = 0x4

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_NO_NEW_PRIVS = 38

_AT_RECURSIVE = 0x8000
_MNT_DETACH = 0x2
_MOUNT_ATTR_SIZE = 32
# The same number on every architecture, as for all calls since Linux 5.1.
_SYS_MOUNT_SETATTR = 442
_CAPABILITY_VERSION_3 = 0x2008_0522
_SECCOMP_MODE_FILTER = 2
_PR_SET_SECCOMP = 22
_PR_CAPBSET_DROP = 24
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, tried: str) -> None:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), tried)


def unshare(flags: int) -> None:
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare namespaces")


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    result = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        None if kind is None else kind.encode(),
        ctypes.c_ulong(flags),
        options.encode() or None,
    )
    _check(result, f"mount {source} on {target}")


def set_mount_attributes(target: str, attributes: int) -> None:
    """Set MOUNT_ATTR_* flags on a mount and on all mounts below it (Linux 5.12)."""
    # struct mount_attr {u64 attr_set, attr_clr, propagation, userns_fd}
    request = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
    result = _libc.syscall(
        ctypes.c_long(_SYS_MOUNT_SETATTR),
        ctypes.c_int(-1),
        ctypes.c_char_p(os.fsencode(target)),
        ctypes.c_uint(_AT_RECURSIVE),
        request,
        ctypes.c_size_t(_MOUNT_ATTR_SIZE),
    )
    _check(result, f"mount_setattr on {target}")


def pivot_root(new_root: str, old_root: str) -> None:
    _check(_libc.pivot_root(os.fsencode(new_root), os.fsencode(old_root)), f"pivot_root to {new_root}")


def detach(target: str) -> None:
    _check(_libc.umount2(os.fsencode(target), ctypes.c_int(_MNT_DETACH)), f"unmount {target}")


def set_hostname(name: bytes) -> None:
    _check(_libc.sethostname(name, ctypes.c_size_t(len(name))), "sethostname")


def prctl(option: int, argument: int, tried: str) -> None:
    _check(_prctl(option, argument), tried)


def _prctl(option: int, argument: int, pointer: object = None) -> int:
    zero = ctypes.c_ulong(0)
    third = zero if pointer is None else pointer
    result: int = _libc.prctl(ctypes.c_int(option), ctypes.c_ulong(argument), third, zero, zero)
    return result


def renounce_capabilities() -> None:
    """Empty the bounding set: capabilities dropped later can never be regained. Needs CAP_SETPCAP itself."""
    capability = 0
    while _prctl(_PR_CAPBSET_DROP, capability) == 0:
        capability += 1
    # The number after the last one that this kernel knows is invalid.
    if ctypes.get_errno() != errno.EINVAL:
        _check(-1, f"renounce capability {capability}")


def drop_capabilities() -> None:
    """Drop the capabilities of this process: its ambient, effective, permitted and inheritable sets."""
    _check(_prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL), "clear ambient capabilities")
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _check(_libc.capset(header, nothing), "drop capabilities")


class _FilterProgram(ctypes.Structure):
    """struct sock_fprog of <linux/filter.h>: the number of instructions and their address."""

    _fields_ = (("count", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def install_filter(instructions: bytes) -> None:
    """Install a seccomp filter of 8-byte instructions for this process and its threads, until they end."""
    program = _FilterProgram(len(instructions) // 8, instructions)
    _check(_prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program)), "install the seccomp filter")
