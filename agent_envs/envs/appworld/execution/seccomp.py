"""A list of the system calls that a session's process may make; all others fail.

Written as the kernel's own filter program, set with ``prctl`` through ctypes: needs no package and no
privilege. A list of what is allowed, since lists of what is forbidden leave gaps.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterable
from dataclasses import dataclass

_EPERM, _ENOSYS = 1, 38
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _MODE_FILTER = 38, 22, 2
_KILL, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
# instructions: load a word of the call's record; jump if equal; jump if a bit is set; return
_LOAD, _EQUAL, _BITS, _RETURN = 0x20, 0x15, 0x45, 0x06
_AT_NUMBER, _AT_ARCH, _AT_THIRD_ARGUMENT = 0, 4, 32  # low half: both machines are little-endian
_PROT_EXEC = 4


@dataclass(frozen=True, slots=True)
class Machine:
    """System call numbers of one architecture."""

    arch: int
    allowed: tuple[int, ...]
    mapping: tuple[int, ...]
    """mmap and mprotect: allowed unless the memory is to be executable."""
    absent: tuple[int, ...]
    """Calls that libc tries first and replaces by an older one where they do not exist."""


# read write close lseek munmap brk rt_sigaction rt_sigprocmask rt_sigreturn mremap madvise
# sched_yield nanosleep clock_nanosleep clock_gettime clock_getres gettimeofday getpid getppid gettid
# futex exit exit_group getrandom sigaltstack restart_syscall rseq set_robust_list
MACHINES = {
    "x86_64": Machine(
        0xC000003E,
        (
            *(0, 1, 3, 8, 11, 12, 13, 14, 15, 25, 28, 24, 35, 230, 228, 229, 96, 39, 110, 186, 202),
            *(60, 231, 318, 131, 219, 334, 273, 201),  # the last: time
        ),
        (9, 10),
        (435,),  # clone3
    ),
    "aarch64": Machine(
        0xC00000B7,
        (
            *(63, 64, 57, 62, 215, 214, 134, 135, 139, 216, 233, 124, 101, 115, 113, 114, 169, 172),
            *(173, 178, 98, 93, 94, 278, 132, 128, 293, 99),
        ),
        (222, 226),
        (435,),
    ),
}


def program(machine: Machine) -> bytes:
    """The filter program: eight bytes an instruction."""
    code: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, _AT_ARCH),
        (_EQUAL, 1, 0, machine.arch),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _AT_NUMBER),
    ]

    def answer(numbers: Iterable[int], result: int) -> None:
        for number in numbers:
            code.extend([(_EQUAL, 0, 1, number), (_RETURN, 0, 0, result)])

    answer(machine.allowed, _ALLOW)
    answer(machine.absent, _ERRNO | _ENOSYS)
    for number in machine.mapping:
        code += [
            (_EQUAL, 0, 4, number),
            (_LOAD, 0, 0, _AT_THIRD_ARGUMENT),
            (_BITS, 0, 1, _PROT_EXEC),
            (_RETURN, 0, 0, _ERRNO | _EPERM),
            (_RETURN, 0, 0, _ALLOW),
        ]
    code.append((_RETURN, 0, 0, _ERRNO | _EPERM))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def confine(machine: str) -> str:
    """Set the filter for this process, for good; returns why it could not, or an empty string."""
    if machine not in MACHINES:
        return f"no list of system calls for {machine or 'this machine'}"
    code = program(MACHINES[machine])
    try:
        prctl = ctypes.CDLL(None, use_errno=True).prctl
    except (OSError, AttributeError):
        return "this system has no prctl"
    prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    record = _Program(len(code) // 8, code)
    where = ctypes.addressof(record)
    if prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or prctl(_PR_SET_SECCOMP, _MODE_FILTER, where, 0, 0):
        return f"the kernel refused the filter (errno {ctypes.get_errno()})"
    return ""
