"""The system calls that generated code may make, as a seccomp filter for x86_64 and aarch64.

It is an allow list: every call not named here fails with ENOSYS, which C libraries treat as an older kernel and work
around. Not named are, among others: fork, vfork, execve and clone3 (so there is never a second process nor another
program), socket and connect, mount, unshare and setns, ptrace, process_vm_readv, keyctl, bpf, io_uring, userfaultfd,
perf_event_open, kexec_load, memfd_create and System V IPC (memory that RLIMIT_AS does not count), setuid and its
variants. clone is allowed for threads only.
"""

from __future__ import annotations

import struct


# name, number on x86_64, number on aarch64 ("-": the architecture has no such call)
_ALLOWED = """
read 0 63, write 1 64, readv 19 65, writev 20 66, pread64 17 67, pwrite64 18 68, preadv 295 69, pwritev 296 70,
preadv2 327 286, pwritev2 328 287, lseek 8 62, open 2 -, openat 257 56, creat 85 -, close 3 57, close_range 436 436,
dup 32 23, dup2 33 -, dup3 292 24, fcntl 72 25, flock 73 32, fsync 74 82, fdatasync 75 83, truncate 76 45,
ftruncate 77 46, fallocate 285 47, fadvise64 221 223, sendfile 40 71, copy_file_range 326 285, ioctl 16 29,
pipe 22 -, pipe2 293 59,

stat 4 -, fstat 5 80, lstat 6 -, newfstatat 262 79, statx 332 291, statfs 137 43, fstatfs 138 44, access 21 -,
faccessat 269 48, faccessat2 439 439, readlink 89 -, readlinkat 267 78, getcwd 79 17, chdir 80 49, fchdir 81 50,
mkdir 83 -, mkdirat 258 34, rmdir 84 -, rename 82 -, renameat 264 38, renameat2 316 276, unlink 87 -, unlinkat 263 35,
link 86 -, linkat 265 37, symlink 88 -, symlinkat 266 36, chmod 90 -, fchmod 91 52, fchmodat 268 53, utime 132 -,
utimes 235 -, utimensat 280 88, futimesat 261 -, umask 95 166, getdents 78 -, getdents64 217 61,

brk 12 214, mmap 9 222, munmap 11 215, mremap 25 216, mprotect 10 226, madvise 28 233, msync 26 227,
membarrier 324 283,

clock_gettime 228 113, clock_getres 229 114, clock_nanosleep 230 115, nanosleep 35 101, gettimeofday 96 169,
time 201 -, times 100 153, alarm 37 -, setitimer 38 103, getitimer 36 102, timerfd_create 283 85,
timerfd_settime 286 86, timerfd_gettime 287 87,

poll 7 -, ppoll 271 73, select 23 -, pselect6 270 72, epoll_create 213 -, epoll_create1 291 20, epoll_ctl 233 21,
epoll_wait 232 -, epoll_pwait 281 22, epoll_pwait2 441 441, eventfd 284 -, eventfd2 290 19, pause 34 -,
restart_syscall 219 128, futex 202 98, futex_waitv 449 449,

rt_sigaction 13 134, rt_sigprocmask 14 135, rt_sigreturn 15 139, rt_sigpending 127 136, rt_sigtimedwait 128 137,
rt_sigsuspend 130 133, sigaltstack 131 132, kill 62 129, tkill 200 130, tgkill 234 131, signalfd 282 -,
signalfd4 289 74,

exit 60 93, exit_group 231 94, wait4 61 260, waitid 247 95, set_tid_address 218 96, set_robust_list 273 99,
rseq 334 293, sched_yield 24 124, sched_getaffinity 204 123, sched_getparam 143 121, sched_getscheduler 145 120,
sched_get_priority_max 146 125, sched_get_priority_min 147 126, getcpu 309 168, getpriority 140 141, getpid 39 172,
getppid 110 173, gettid 186 178, getpgid 121 155, getpgrp 111 -, getsid 124 156, getuid 102 174, geteuid 107 175,
getgid 104 176, getegid 108 177, getgroups 115 158, getresuid 118 148, getresgid 120 150, getrlimit 97 163,
setrlimit 160 164, prlimit64 302 261, getrusage 98 165, uname 63 160, sysinfo 99 179, getrandom 318 278,

socketpair 53 199, sendto 44 206, recvfrom 45 207, shutdown 48 210, getsockopt 55 209, getsockname 51 204,
getpeername 52 205
"""

# machine: (AUDIT_ARCH_* of <linux/audit.h>, column of _ALLOWED, number of clone)
_MACHINES = {"x86_64": (0xC000_003E, 1, 56), "aarch64": (0xC000_00B7, 2, 220)}

_LOAD, _AND, _EQUAL, _RETURN = 0x20, 0x54, 0x15, 0x06  # BPF: LD|W|ABS, ALU|AND|K, JMP|JEQ|K, RET|K
_ALLOW, _KILL, _ENOSYS = 0x7FFF_0000, 0x8000_0000, 0x0005_0000 | 38

# Offsets into struct seccomp_data: nr, arch, and the lower half of the first argument (little-endian).
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16

_CLONE_THREAD = 0x0001_0000
_CLONE_NEW = 0x7E02_0000  # every CLONE_NEW* flag that clone takes


def supported(machine: str) -> bool:
    return machine in _MACHINES


def allowed_numbers(machine: str) -> dict[str, int]:
    """Return the numbers of the calls that are allowed with any arguments, by name."""
    column = _MACHINES[machine][1]
    rows = (row.split() for row in _ALLOWED.replace("\n", " ").split(","))
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}


def filter_program(machine: str) -> bytes:
    """Return the filter as BPF instructions (8 bytes each: code, jump if true, jump if false, operand).

    A call in another calling convention kills the process, a listed call and a clone that creates a thread are allowed,
    and all others fail with ENOSYS. The x32 convention has other numbers, which are not listed.
    """
    architecture, _, clone = _MACHINES[machine]
    numbers = sorted(allowed_numbers(machine).values())
    to_allow = [_step(_EQUAL, number, if_true=len(numbers) - index + 4) for index, number in enumerate(numbers)]
    return b"".join(
        [
            _step(_LOAD, _ARCHITECTURE),
            _step(_EQUAL, architecture, if_true=1),
            _step(_RETURN, _KILL),
            _step(_LOAD, _NUMBER),
            *to_allow,
            _step(_EQUAL, clone, if_false=3),
            _step(_LOAD, _FIRST_ARGUMENT),
            _step(_AND, _CLONE_THREAD | _CLONE_NEW),
            _step(_EQUAL, _CLONE_THREAD, if_true=1),
            _step(_RETURN, _ENOSYS),
            _step(_RETURN, _ALLOW),
        ]
    )


def _step(code: int, operand: int, *, if_true: int = 0, if_false: int = 0) -> bytes:
    """Return one `struct sock_filter`; a jump is the number of instructions to skip."""
    return struct.pack("=HBBI", code, if_true, if_false, operand)
