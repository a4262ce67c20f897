"""Compile ahead what a candidate builds, and keep it, where no candidate can write.

A contained process imports the file and tells the recipes of its extensions. It is the candidate's,
and may lie; so a library is kept under the digest of everything that it was compiled from, in a
contained room of its own that holds nothing else. Who asks for other recipes finds other entries.
"""

import functools
import hashlib
import os
import platform
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from kernelgen.build import recipe as recipe_module
from kernelgen.build import slim_headers as slim_module
from kernelgen.build import torch_build as torch_build_module
from kernelgen.build.capture import CaptureError, Tell
from kernelgen.build.diagnostics import explain_build_error
from kernelgen.build.recipe import Recipe
from kernelgen.build.slim_headers import full_headers_may_mend, slim_headers, torch_headers
from kernelgen.build.source import MOST_EXTENSIONS, CaptureRequest
from kernelgen.build.store import BuildStore
from kernelgen.build.toolchain import child_environment, find_compiler, find_toolkit
from kernelgen.build.torch_build import SLIM_FOLDER, Ready, with_headers, write_files
from kernelgen.errors import ToolchainError
from kernelgen.sandbox.contained import Command, run_contained
from kernelgen.sandbox.environment import passed_on, room_environment
from kernelgen.sandbox.limits import usual_limits
from kernelgen.sandbox.record import Plan
from kernelgen.sandbox.survey import survey
from kernelgen.scratch import temporary_folder
from kernelgen.solution.file import SolutionFile
from kernelgen.solution.lending import construction_source, lent_to

# All libraries of a candidate go to its process in one record.
_LIBRARIES_BYTES = 32 << 20
_FILE_BYTES = 256 << 20
# No compiler runs meanwhile. What takes longer is built by the candidate's own process.
_CAPTURE_S = 60.0
_FAILURE_CHARACTERS = 200_000
# In the room there is only what torch has written, and others compile beside: where the candidate's
# own process builds, these may not come.
_MAY_DIFFER = (
    "No such file", "cannot open", "cannot find", "file not found", "No space left", "Killed",
    "internal compiler error", "out of memory", "annot allocate memory", "memory exhausted",
)  # fmt: skip
_FAILS_TO_COMPILE = 3
_PLAN, _SLIM_PLAN = "build.ninja", "slim.ninja"
# Behind the symbols of nvcc's, one a kernel that the sources hold, comes the library: it may hold
# kernels of others, too, which were linked into it.
# Where a folder of headers is not there, others of the same names might be taken from elsewhere.
_STEPS = f"""
cp -R "$1"/. . || exit 1
library="$2" plan="$3"; shift 3
for folder; do [ -d "$folder" ] || exit 1; done
ninja -v -f "$plan" >&2 || exit {_FAILS_TO_COMPILE}
grep -aohE '__device_stub_[A-Za-z0-9_]+' ./*.cuda.o 2>/dev/null | cut -c1-1000 | sort -u
printf '\\0'
exec cat "$library"
"""
# Of what compilers heed; paths that they search are those of the same machine.
_HEEDED = ("CC", "CXX", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH")
_HEEDED_PREFIXES = ("NVCC_", "CUDA_HOME", "NIX_")


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A request to compile ahead.

    Attributes:
        reference_source: has get_init_inputs and get_inputs.
        capability: of the GPU to build for, such as (9, 0); None builds for the CPU.
        timeout_s: for all of it.
        stop: once it is set, all compilers are killed.
        tell: has a contained process say what the solution builds.
    """

    solution: SolutionFile
    reference_source: str
    capability: tuple[int, int] | None
    timeout_s: float
    tell: Tell
    stop: threading.Event = msgspec.field(default_factory=threading.Event)


class Prebuilt(msgspec.Struct, frozen=True, kw_only=True):
    """Extensions that were compiled ahead.

    Attributes:
        ready: for the candidate's process.
        stubs: symbols of the kernels that its sources hold.
        seconds: wall time of now.
        cached: all of it was kept from earlier.
        warning: for the verdict.
        broken: why extensions do not compile, each at its line in the solution.
    """

    ready: Ready = Ready()
    stubs: tuple[str, ...] = ()
    seconds: float = 0.0
    cached: bool = False
    warning: str = ""
    broken: tuple[str, ...] = ()


def prebuild(wanted: Wanted, store: BuildStore) -> Prebuilt:
    """Compile what a solution builds, or find it in the store; safe in several threads at once.

    Everything is contained, and uses no GPU. Where the kernel has no namespaces, nothing is done:
    there, a candidate's processes may outlive their group.

    Raises:
        KernelgenFault: this machine could not contain it.
        OSError: the store cannot be written.
    """
    begin = time.monotonic()
    deadline = begin + wanted.timeout_s
    if "cpp_extension" not in wanted.solution.text or survey().level != "namespaces":
        return Prebuilt()
    try:
        tools = _toolchain()
    except ToolchainError:  # the candidate's own build says more
        return Prebuilt()
    asked = (wanted.solution.text, wanted.reference_source, str(wanted.capability))
    listed = _digest("asked", *asked, tools)
    digests = msgspec.json.decode(store.get(listed) or b"null", type=list[str] | None)
    held = {digest: kept for digest in digests or () if (kept := store.get(_key(digest)))}
    if digests is not None and len(held) == len(digests):
        seconds = time.monotonic() - begin
        return msgspec.structs.replace(_prebuilt(held, {}), seconds=seconds, cached=bool(held))
    with temporary_folder() as folder:
        recipes, all_told = _recipes(wanted, folder)
        made = _made(wanted, recipes, folder, store, deadline)
    whole = all_told and len(made.ready.libraries) == len(recipes)
    if whole:
        store.put(listed, msgspec.json.encode(list(recipes)))
    cached = made.cached and whole and bool(recipes)
    return msgspec.structs.replace(made, seconds=time.monotonic() - begin, cached=cached)


def _made(
    wanted: Wanted, recipes: Mapping[str, Recipe], folder: Path, store: BuildStore, deadline: float
) -> Prebuilt:
    """Compile recipes, or find them in the store; nothing if all is more than a record takes."""
    modules: dict[str, bytes] = {}
    failures: dict[str, str] = {}
    cached, size = True, 0
    for digest, recipe in recipes.items():
        module, failure = store.get(_key(digest)) or b"", ""
        if not module and time.monotonic() < deadline and not wanted.stop.is_set():
            cached = False
            module, failure = _compile(recipe, folder / digest, deadline, wanted.stop)
            if module:
                store.put(_key(digest), module)
        size += len(module) + len(failure)
        if size > _LIBRARIES_BYTES:
            return Prebuilt()
        if module:
            modules[digest] = module
        if failure:
            failures[digest] = failure
    broken = tuple(
        explain_build_error(failure, recipes[digest].files, wanted.solution)
        for digest, failure in failures.items()
    )
    return msgspec.structs.replace(_prebuilt(modules, failures), cached=cached, broken=broken)


def _key(digest: str) -> str:
    """Return the name under which the module of a recipe is kept."""
    return _digest("module", digest, _toolchain())


def _prebuilt(modules: Mapping[str, bytes], failures: Mapping[str, str]) -> Prebuilt:
    """Return modules, each the symbols of kernels, a zero and the library, as what is ready."""
    parts = {digest: module.partition(b"\0") for digest, module in modules.items()}
    libraries = {digest: library for digest, (_, _, library) in parts.items()}
    symbols = b" ".join(found for found, _, _ in parts.values()).decode("ascii", "replace")
    return Prebuilt(
        ready=Ready(libraries=libraries, failures=dict(failures)), stubs=tuple(symbols.split())
    )


def _recipes(wanted: Wanted, folder: Path) -> tuple[dict[str, Recipe], bool]:
    """Return the recipes of what a solution builds, by digest, and whether these are all."""
    inside, beside = folder / "inside", folder / "solution"
    inside.mkdir()
    beside.mkdir()
    # As in grading: its text alone, without the files beside it.
    copy = beside / f"{Path(wanted.solution.name).stem}.py"
    copy.write_text(wanted.solution.text, encoding="utf-8")
    request = CaptureRequest(
        solution=str(copy.resolve()),
        reference_source=construction_source(wanted.reference_source),
        scratch=str(inside.resolve()),
        plan=_plan(inside, copy),
        # Of a problem that lends nothing, the contract has refused what lacks names.
        lent=lent_to(wanted.solution.text, wanted.reference_source).source,
        capability=wanted.capability,
    )
    try:
        reply = wanted.tell(request, min(_CAPTURE_S, wanted.timeout_s))
    except CaptureError:
        return {}, False
    if len(reply.recipes) > MOST_EXTENSIONS:
        return {}, False
    sound = {recipe.digest: recipe for recipe in reply.recipes if recipe.is_sound()}
    # A file that failed before it built anything may yet build.
    failed_before = reply.failure is not None and not sound
    return sound, all(map(Recipe.is_sound, reply.recipes)) and not failed_before


def _plan(scratch: Path, shown: Path) -> Plan:
    limits = msgspec.structs.replace(usual_limits(), file_bytes=_FILE_BYTES)
    plan = survey().plan(scratch, limits=limits)
    return msgspec.structs.replace(plan, readable=(str(shown.resolve()),), gpu=False)


def _compile(
    recipe: Recipe, room: Path, deadline: float, stop: threading.Event
) -> tuple[bytes, str]:
    """Compile a recipe in an empty folder in memory, with its files and no others.

    Returns:
        The module, that is the symbols, a zero and the library, empty if it does not compile here;
        and what the compilers said of what compiles nowhere.
    """
    given, inside = room / "given", room / "inside"
    inside.mkdir(parents=True)
    texts = _files(recipe)
    write_files(given, texts)
    scratch = str(inside.resolve())
    steps = ["/bin/sh", "-c", _STEPS, "sh", str(given.resolve())]
    for plan in (name for name in (_SLIM_PLAN, _PLAN) if name in texts):
        command = Command(
            words=[*steps, recipe.library, plan, *recipe.folders()],
            plan=_plan(inside, given),
            environment={**child_environment(room_environment(scratch)), "TMPDIR": scratch},
            timeout_s=deadline - time.monotonic(),
            stop=stop,
            output_limit_bytes=_LIBRARIES_BYTES,
        )
        ended = run_contained(command, scratch)
        fails = ended.code == _FAILS_TO_COMPILE
        if not (fails and full_headers_may_mend(ended.log, recipe.files)):
            break
    everywhere = not any(words in ended.log for words in _MAY_DIFFER)
    failed = fails and everywhere
    module = ended.output if ended.code == 0 else b""
    return module, ended.log[:_FAILURE_CHARACTERS] if failed else ""


def _files(recipe: Recipe) -> dict[str, str]:
    """Return what a room begins with: torch's files, and the same with slim headers if those do."""
    texts = {**recipe.files, _PLAN: recipe.ninja}
    headers = slim_headers(*recipe.texts())
    if headers:
        texts[_SLIM_PLAN] = with_headers(recipe.ninja, Path(SLIM_FOLDER))
        texts |= {f"{SLIM_FOLDER}/{name}": text for name, text in headers.items()}
    return texts


@functools.cache
def _toolchain() -> str:
    """Return a digest of all that a library depends on beside its recipe.

    Raises:
        ToolchainError: there is no C++ compiler.
    """
    environment = passed_on(os.environ)
    try:
        nvcc = find_toolkit(environment).version
    except ToolchainError:
        nvcc = ""
    torch, compiler = torch_headers().with_name("version.py"), find_compiler(environment)
    heeded = [
        f"{name}={value}"
        for name, value in sorted(environment.items())
        if name in _HEEDED or name.startswith(_HEEDED_PREFIXES) or name.endswith("FLAGS")
    ]
    ours = [
        Path(module.__file__ or "").read_text(encoding="utf-8")
        for module in (recipe_module, slim_module, torch_build_module)
    ]
    return _digest(
        torch.read_text(),
        str(torch.stat().st_mtime_ns),
        nvcc,
        *compiler.command,
        compiler.version,
        platform.python_version(),
        _processor(),
        *heeded,
        *ours,
        *slim_module.TEXTS,
    )


def _processor() -> str:
    """Return what -march=native goes by."""
    lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    words = ("model name", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(words)}))


def _digest(*parts: str) -> str:
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()
