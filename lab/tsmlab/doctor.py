"""Can an allocator be preloaded into this program? Inspects the file, and proves it by counting
calls.

An ineffective preload is silent, and then two measurements of the same allocator get compared.
Every known reason has a name and a remedy here. The proof runs the command once for each allocator.
"""

import os
import platform
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from tsmlab import tracker
from tsmlab.allocators import Allocator
from tsmlab.elf import ElfFacts, NotElf, read_facts
from tsmlab.errors import EXIT_CANNOT_EXECUTE, EXIT_USAGE, UserError
from tsmlab.measuring import Measurement, RunRequest
from tsmlab.programs import CannotStart, Resolved, resolve
from tsmlab.tracker import Tracked


@dataclass(frozen=True)
class Proof:
    allocator: Allocator
    measurement: Measurement
    processes: tuple[Tracked, ...]

    @property
    def calls(self) -> int:
        return sum(counts.calls for counts in self.processes)

    @property
    def other_providers(self) -> tuple[Path, ...]:
        """Libraries other than the allocator's that provided malloc to processes that called it."""
        if self.allocator.path is None:
            return ()
        own = self.allocator.path.resolve()
        found = {Path(counts.provider or "(unknown)") for counts in self.processes if counts.calls}
        return tuple(sorted(path for path in found if path.resolve() != own))

    @property
    def non_libc_providers(self) -> dict[str, str]:
        """Without a preload: programs, by name, whose malloc came from another library than the C
        library, and that library."""
        if self.allocator.path is not None:
            return {}
        return {
            Path(counts.program).name: Path(counts.provider).name
            for counts in self.processes
            if counts.calls and not re.match(r"libc[.-]|$", Path(counts.provider).name)
        }


def prove(
    command: Sequence[str], allocator: Allocator, timeout_seconds: float | None, stdin: Path | None
) -> Proof:
    """Runs the command with its output discarded (and no input but `stdin`); reads the counts."""
    nowhere = Path("/dev/null")
    request = RunRequest(
        command=tuple(command),
        allocator=allocator,
        stdin=stdin,
        stdout=nowhere,
        stderr=nowhere,
        timeout_seconds=timeout_seconds,
        sample_ms=0,
    )
    run = tracker.track(request, tracker.VARIABLE_OF_CALLS)
    return Proof(allocator, run.measurement, run.processes)


Severity = Literal["ok", "note", "warning", "fatal"]

# The statuses of shells, and of an installation's front end (tools/front).
START_FAILURES = {
    "empty": EXIT_USAGE,
    "not-found": 127,
    **dict.fromkeys(("not-elf", "loader-missing"), EXIT_CANNOT_EXECUTE),
}
# The kernel's names of machines, by pyelftools' names.
MACHINES = {"x64": "x86_64", "x86": "i686", "AArch64": "aarch64", "RISC-V": "riscv64"}
MACHINES |= {"64-bit PowerPC": "ppc64le", "IBM S/390": "s390x", "ARM": "armv7l"}
STATIC_REMEDY = "Link it dynamically (without -static), or link the allocator into it."


@dataclass(frozen=True)
class Finding:
    severity: Severity
    code: str
    message: str
    remedy: str = ""

    @property
    def full_text(self) -> str:
        return f"{self.message} {self.remedy}"


fatal = partial(Finding, "fatal")
warning = partial(Finding, "warning")


@dataclass(frozen=True)
class Diagnosis:
    command: tuple[str, ...]
    resolved: Resolved | None  # None: the command cannot be started
    findings: tuple[Finding, ...]
    proofs: tuple[Proof, ...] = ()

    @property
    def fatal(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == "fatal")

    @property
    def preloadable(self) -> bool:
        return not self.fatal

    @property
    def warnings(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == "warning")

    def raise_if_fatal(self, hint: str = "", *, as_shells: bool = False) -> None:
        """Raises UserError if the program cannot run, or if preloading would be in vain: with a
        shell's exit status if it cannot start and `as_shells` is set, and with the hint if it can
        start."""
        if not self.fatal:
            return
        code, status = self.fatal[0].code, EXIT_USAGE
        if not self.resolved or code in START_FAILURES:
            status = START_FAILURES.get(code, EXIT_CANNOT_EXECUTE) if as_shells else EXIT_USAGE
            hint = ""
        message = " ".join(finding.message for finding in self.fatal)
        remedies = [*(finding.remedy for finding in self.fatal), hint]
        raise UserError(message, "\n".join(filter(None, remedies)), status)


def diagnose(
    command: Sequence[str],
    *,
    allocators: Sequence[Allocator] = (),
    timeout_seconds: float | None = None,
    stdin: Path | None = None,
) -> Diagnosis:
    """Inspects the program's file, then runs the command under each of `allocators` for the proof.

    Runs nothing if the file alone shows that it would be in vain.
    """
    try:
        resolved = resolve(command, os.environ)
    except CannotStart as error:
        finding = fatal(error.code, error.message, error.remedy)
        return Diagnosis(tuple(command), None, (finding,))
    findings = []
    if resolved.scripts:
        chain = " -> ".join(map(str, resolved.chain))
        used = f"a script; the allocator is used by its interpreter: {chain}"
        findings.append(Finding("note", "script", used))
    findings += [*_program_findings(resolved.program), *_environment_findings()]
    diagnosis = Diagnosis(tuple(command), resolved, tuple(findings))
    if not diagnosis.preloadable:
        return diagnosis
    proofs = []
    for allocator in allocators:
        if wrong := _wrong_libc(resolved.program, allocator):
            findings.append(wrong)
            continue
        proof = prove(command, allocator, timeout_seconds, stdin)
        proofs.append(proof)
        findings += _proof_findings(proof)
    # A program may start others, as a shell script that starts Python does.
    for name in sorted({Path(p.program).name for proof in proofs for p in proof.processes}):
        findings += (f for f in _known_runtimes(name, "") if f not in findings)
    return Diagnosis(tuple(command), resolved, tuple(findings), tuple(proofs))


def _program_findings(program: Path) -> Iterator[Finding]:
    try:
        facts = read_facts(program)
    except NotElf as error:
        yield fatal(
            "not-elf",
            f"{program} cannot be executed on this system: {error}.",
            "If it is a script, its first line must name an interpreter (#!/bin/sh).",
        )
        return
    except OSError as error:
        yield fatal(
            "unreadable",
            f"cannot read {program}: {error.strerror}.",
            "Make a copy that you can read.",
        )
        return
    loader = tuple(_loader_findings(program, facts))
    yield from loader
    yield from _privilege_findings(program)
    if any(finding.severity == "fatal" for finding in loader):
        return  # the contents (a static program has libc's malloc) no longer matter
    yield from _heap_findings(program, facts)
    if "malloc_usable_size" in facts.imported:
        yield warning(
            "usable-size",
            f"{program.name} calls malloc_usable_size: if it then writes past the size it "
            "requested, its behaviour depends on the allocator, and _FORTIFY_SOURCE=3 aborts it.",
            "Request malloc_good_size bytes, or claim the extra space with realloc.",
        )
    if facts.go and facts.interpreter is not None:
        yield warning(
            "go",
            f"{program.name} is a Go program: only its C parts (cgo) call malloc.",
            "Go cannot use another allocator for its own objects.",
        )
    yield from _known_runtimes(program.name, " ".join(facts.needed))


def _loader_findings(program: Path, facts: ElfFacts) -> Iterator[Finding]:
    """Whether a dynamic loader for this kind of machine will see LD_PRELOAD."""
    own_bits = 64 if platform.architecture()[0] == "64bit" else 32
    if facts.bits != own_bits or MACHINES.get(facts.machine, facts.machine) != platform.machine():
        yield fatal(
            "architecture",
            f"{program.name} is a {facts.bits}-bit {facts.machine} program; the allocators here "
            f"are {own_bits}-bit {platform.machine()}.",
            "Use a build of the program for this machine.",
        )
    elif facts.interpreter is None and facts.go:
        yield fatal(
            "go",
            f"{program.name} is a static Go program: it has its own heap, and no dynamic loader "
            "that could preload anything.",
            "Go cannot use another allocator for its own objects.",
        )
    elif facts.interpreter is None:
        kind = "static-pie" if facts.has_dynamic else "static"
        yield fatal(
            kind,
            f"{program.name} is statically linked ({kind}): no dynamic loader reads LD_PRELOAD.",
            STATIC_REMEDY,
        )
    elif "ld-musl" in facts.interpreter:
        yield fatal(
            "musl",
            f"{program.name} is built for musl ({facts.interpreter}); the allocators here need "
            "glibc.",
            "Use a build of the program for glibc, or of the library for musl: docs/use.md, musl.",
        )
    elif not Path(facts.interpreter).exists():
        yield fatal(
            "loader-missing",
            f"the dynamic loader of {program.name} is missing: {facts.interpreter}.",
            "Install the C library that it was built for.",
        )
    else:
        yield Finding("ok", "dynamic", f"{program.name} is a dynamic {facts.bits}-bit program")


def _privilege_findings(program: Path) -> Iterator[Finding]:
    """Programs that gain privileges at start run in secure mode, which ignores LD_PRELOAD."""
    status = program.stat()
    if os.statvfs(program).f_flag & os.ST_NOSUID:
        return
    changes = []
    if status.st_mode & stat.S_ISUID and status.st_uid != os.getuid():
        changes.append(("setuid", f"sets its user to {status.st_uid}"))
    # Without group execution the bit has another, historical meaning.
    gains_group = status.st_mode & stat.S_ISGID and status.st_mode & stat.S_IXGRP
    if gains_group and status.st_gid != os.getgid():
        changes.append(("setgid", f"sets its group to {status.st_gid}"))
    if os.getuid() != 0 and _has_capabilities(program):
        changes.append(("capabilities", "has file capabilities"))
    for code, text in changes:
        yield fatal(
            code,
            f"{program} {text} when it starts (AT_SECURE), so the loader ignores LD_PRELOAD.",
            f"Test a copy, which lacks these privileges: cp {program} /tmp/",
        )


def _has_capabilities(program: Path) -> bool:
    try:
        return bool(os.getxattr(program, "security.capability"))
    except OSError:
        return False


def _heap_findings(program: Path, facts: ElfFacts) -> Iterator[Finding]:
    libraries = " ".join(facts.needed)
    sanitizers = facts.sanitizers or tuple(re.findall(r"lib(?:clang_rt\.)?([atml]san)", libraries))
    if sanitizers:
        yield fatal(
            "sanitizer",
            f"{program.name} is built with {', '.join(sanitizers)}, which has its own allocator "
            "and works with no other.",
            "Use a build without -fsanitize.",
        )
        return
    inside = " and ".join(facts.allocators_inside)
    if facts.defines_malloc:
        yield fatal(
            "own-allocator",
            f"{program.name} defines malloc itself{f' ({inside} is inside)' if inside else ''}.",
            "The program's own definition always wins: build it without.",
        )
    elif inside:
        yield warning(
            "own-allocator",
            f"{inside} seems to be linked into {program.name} under other names: calls to it do "
            "not reach a preloaded allocator.",
            "The proof shows how many calls do; or build the program without it.",
        )
    names = r"lib(?:jemalloc|mimalloc|tcmalloc|tbbmalloc|hoard|snmalloc|rpmalloc)\S*"
    for library in re.findall(names, libraries):
        yield warning(
            "linked-allocator",
            f"{program.name} is linked with {library}: without a preload it uses that one, so "
            "the row `glibc` does not measure glibc.",
            "A preloaded allocator takes precedence over it.",
        )


@dataclass(frozen=True)
class Runtime:
    """A language runtime that does not get all its memory from malloc."""

    code: str
    programs: str  # pattern for the program's name
    libraries: str  # pattern for the libraries that it needs
    message: str
    remedy: str
    cured_by: tuple[str, str] | None = None  # an environment variable and its value


RUNTIMES = (
    Runtime(
        "python",
        r"python[\d.]*",
        r"libpython",
        "Python allocates objects of up to 512 bytes itself (pymalloc).",
        "To send them to the allocator too: PYTHONMALLOC=malloc",
        ("PYTHONMALLOC", "malloc"),
    ),
    Runtime(
        "php",
        r"php[-\w.]*",
        r"libphp",
        "PHP allocates its values itself (the Zend memory manager).",
        "To send them to the allocator too: USE_ZEND_ALLOC=0",
        ("USE_ZEND_ALLOC", "0"),
    ),
    Runtime(
        "java",
        r"java|javac",
        r"libjli|libjvm",
        "Java objects live in the virtual machine's own heap.",
        "Only its native memory (compilers, buffers, threads) is measured.",
    ),
    Runtime(
        "javascript",
        r"node|nodejs|deno|bun|chromium|chrome|electron",
        r"libnode|libv8",
        "JavaScript objects live in the engine's own heap.",
        "Only its native memory (buffers, parsers, addons) is measured.",
    ),
    Runtime(
        "dotnet",
        r"dotnet",
        r"libcoreclr",
        ".NET objects live in the runtime's own heap.",
        "Only its native memory is measured.",
    ),
    Runtime(
        "erlang",
        r"beam\.smp|erl",
        r"(?!)",
        "Erlang allocates its terms from its own carriers.",
        'To send them to the allocator too: ERL_FLAGS="+Mea min"',
        ("ERL_FLAGS", "+Mea min"),
    ),
)


def _known_runtimes(name: str, libraries: str) -> Iterator[Finding]:
    """Heaps of language runtimes: the preload works, but not for all of their memory."""
    for runtime in RUNTIMES:
        fits = re.fullmatch(runtime.programs, name) or re.search(runtime.libraries, libraries)
        cured = runtime.cured_by is not None and runtime.cured_by in os.environ.items()
        if fits and not cured:
            yield Finding("note", runtime.code, runtime.message, runtime.remedy)


def _environment_findings() -> Iterator[Finding]:
    """Preloads that were set before ours."""
    if preloaded := os.environ.get("LD_PRELOAD", "").strip():
        yield warning(
            "already-preloaded",
            f"LD_PRELOAD is already set: {preloaded}. It is kept, after the allocator.",
            "If it is an allocator, unset it: unset LD_PRELOAD",
        )
    try:
        system_wide = Path("/etc/ld.so.preload").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError):
        system_wide = ""
    if system_wide:
        yield warning(
            "system-preload",
            f"/etc/ld.so.preload loads {system_wide} into every program on this machine.",
            "If it is an allocator, the row `glibc` measures that one.",
        )


def _wrong_libc(program: Path, allocator: Allocator) -> Finding | None:
    """A finding if the library is for musl, which the loader of a glibc program rejects."""
    if allocator.path is None:
        return None
    try:
        needed = read_facts(allocator.path).needed
    except (NotElf, OSError):
        return None  # the proof will show the effect
    # Alpine's name for libc, and musl's own.
    if not any(name.startswith("libc.musl-") or name == "libc.so" for name in needed):
        return None
    return fatal(
        "wrong-libc",
        f"{allocator.name} ({allocator.path}) is built for musl, and {program.name} for glibc.",
        "Preload one that is built for glibc; `tsmalloc lib tsmalloc` prints the path of one.",
    )


def _proof_findings(proof: Proof) -> Iterator[Finding]:
    name, measurement = proof.allocator.name, proof.measurement
    for program, library in sorted({(p.program, p.deep_bound) for p in proof.processes}):
        if library:
            yield warning(
                "deep-binding",
                f"{Path(program).name} loads {library} with RTLD_DEEPBIND: that library bypasses "
                "every preloaded allocator and calls libc's malloc and free. If one side frees "
                "what the other allocated, the program crashes.",
                "Load it without RTLD_DEEPBIND, or keep libc's malloc for this program.",
            )
    for program, library in sorted(proof.non_libc_providers.items()):
        yield warning(
            "linked-allocator",
            f"{program} uses {library}, so the row `{name}` measures that allocator.",
            "A preloaded allocator takes precedence over it, unless it is part of the program "
            "itself.",
        )
    if measurement.failed:
        # A program may be meant to exit with another status than 0, but not to die by a signal.
        crashed = measurement.signal is not None and not measurement.timed_out
        yield Finding(
            "fatal" if crashed or measurement.spawn_error else "note",
            "crashed" if crashed else "ended",
            f"the program failed under {name}: {measurement.failure_text()}.",
            "Check whether it also fails without it: tsmalloc run glibc -- ..." if crashed else "",
        )
    if not proof.processes and measurement.exit_code in (126, 127):
        yield fatal(
            "not-started",
            f"the program did not start under {name}: exit status {measurement.exit_code}.",
            "Run it on its own: a library that it needs may be missing (ldd PROGRAM).",
        )
    elif not proof.processes:
        yield fatal(
            "not-loaded",
            f"the preloaded library was not loaded under {name}.",
            "A security policy (AppArmor, SELinux) may have removed LD_PRELOAD, or the program "
            "clears its environment before it starts the real one.",
        )
    elif proof.calls == 0:
        yield fatal(
            "not-intercepted",
            f"no malloc call was intercepted under {name}.",
            "The program has its own heap, or allocates nothing with these arguments.",
        )
    elif others := proof.other_providers:
        yield fatal(
            "served-by-other",
            f"under {name} the calls went to {', '.join(map(str, others))}.",
            "Another library takes precedence: check LD_PRELOAD and the program's libraries.",
        )
    else:
        many = len({counts.pid for counts in proof.processes if counts.calls})
        yield Finding(
            "ok",
            "proven",
            f"{name} handled {proof.calls:,} calls in {many} process{'es' * (many > 1)}.",
        )
