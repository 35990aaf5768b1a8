"""The system call filter, run by an interpreter of its own on both architectures."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval._sandbox import syscalls


ARCHITECTURES = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
CLONE = {"x86_64": 56, "aarch64": 220}
ALLOW, KILL, ENOSYS = 0x7FFF_0000, 0x8000_0000, 0x0005_0026
THREAD = 0x003D_0F00  # the flags of pthread_create

HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}


def verdict(machine: str, number: int, argument: int = 0, architecture: int | None = None) -> int:
    """What the kernel would decide (classic BPF; see Documentation/networking/filter.rst)."""
    data = struct.pack("=IIQQ", number, architecture or ARCHITECTURES[machine], 0, argument)
    steps = list(struct.iter_unpack("=HBBI", syscalls.filter_program(machine)))
    position, accumulator = 0, 0
    while True:
        code, if_true, if_false, operand = steps[position]
        position += 1
        if code == 0x06:
            return int(operand)
        if code == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, operand)
        elif code == 0x54:
            accumulator &= operand
        else:
            assert code == 0x15
            position += if_true if accumulator == operand else if_false


@pytest.fixture(params=sorted(ARCHITECTURES))
def machine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def test_every_listed_call_is_allowed(machine: str) -> None:
    for name, number in syscalls.allowed_numbers(machine).items():
        assert verdict(machine, number) == ALLOW, name


@given(
    machine=st.sampled_from(sorted(ARCHITECTURES)), number=st.integers(0, 2**32 - 1), argument=st.integers(0, 2**64 - 1)
)
def test_every_other_call_is_unknown(machine: str, number: int, argument: int) -> None:
    if number not in {*syscalls.allowed_numbers(machine).values(), CLONE[machine]}:
        assert verdict(machine, number, argument) == ENOSYS


def test_no_number_that_kernels_use_is_allowed_unless_listed(machine: str) -> None:
    allowed = {number for number in range(600) if verdict(machine, number) == ALLOW}
    assert allowed == set(syscalls.allowed_numbers(machine).values())


def test_clone_makes_threads_and_nothing_else(machine: str) -> None:
    assert verdict(machine, CLONE[machine], THREAD) == ALLOW
    assert verdict(machine, CLONE[machine], 17) == ENOSYS  # fork: SIGCHLD alone
    assert verdict(machine, CLONE[machine], 0x4111) == ENOSYS  # vfork
    for namespace in (0x2_0000, 0x200_0000, 0x400_0000, 0x800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000):
        assert verdict(machine, CLONE[machine], THREAD | namespace) == ENOSYS
        assert verdict(machine, CLONE[machine], namespace) == ENOSYS


def test_other_calling_conventions_are_killed_or_unknown() -> None:
    i386, x32_bit = 0x4000_0003, 0x4000_0000
    assert verdict("x86_64", 1, architecture=i386) == KILL
    assert verdict("aarch64", 1, architecture=ARCHITECTURES["x86_64"]) == KILL
    assert verdict("x86_64", x32_bit | 1) == ENOSYS


def test_numbers_are_those_of_the_kernel_headers(machine: str) -> None:
    if not HEADERS[machine].exists():
        pytest.skip(f"needs the kernel's header {HEADERS[machine]}")
    defined = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", HEADERS[machine].read_text()))
    renamed = {"newfstatat": "fstatat"} if machine == "aarch64" else {}
    for name, number in syscalls.allowed_numbers(machine).items():
        assert int(defined[renamed.get(name, name)]) == number, name


def test_names_are_the_same_on_both_where_both_have_them() -> None:
    old = {"open", "stat", "fork", "poll", "select", "pipe", "dup2", "access", "time", "pause", "alarm"}
    only_x86 = set(syscalls.allowed_numbers("x86_64")) - set(syscalls.allowed_numbers("aarch64"))
    assert set(syscalls.allowed_numbers("aarch64")) < set(syscalls.allowed_numbers("x86_64"))
    assert old - {"fork"} <= only_x86


@pytest.mark.parametrize(
    "names",
    [
        "fork vfork clone clone3 execve execveat socket connect bind listen accept mount umount2 unshare setns ptrace",
        "process_vm_readv process_vm_writev keyctl add_key request_key bpf io_uring_setup userfaultfd perf_event_open",
        "kexec_load kexec_file_load memfd_create memfd_secret shmget setuid setgid setresuid chroot pivot_root prctl",
        "open_by_handle_at init_module finit_module personality pidfd_open pidfd_getfd sendmsg recvmsg",
    ],
)
def test_dangerous_names_are_not_listed(names: str) -> None:
    for machine in ARCHITECTURES:
        assert not set(names.split()) & set(syscalls.allowed_numbers(machine))


def test_other_machines_have_no_filter() -> None:
    assert syscalls.supported("x86_64")
    assert syscalls.supported("aarch64")
    assert not any(syscalls.supported(machine) for machine in ("arm64", "AMD64", "riscv64", "i686", ""))
