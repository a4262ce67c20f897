"""Builds that a solution asks for, found without building."""

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from warm_lane import tell

from kernelgen.build.capture import CaptureError, capture_sources, plan_to_build
from kernelgen.build.source import CaptureReply
from kernelgen.errors import KernelgenFault
from kernelgen.sandbox.record import Plan

MODEL = """
class ModelNew(torch.nn.Module):
    def __init__(self, *given):
        super().__init__()
        self.given = given
    def forward(self, x):
        return x
"""
IMPORTS = "import torch\nfrom torch.utils.cpp_extension import load_inline\n"


def _capture(folder: Path, text: str, reference: str | None = None) -> CaptureReply:
    solution = folder / "solution.py"
    solution.write_text(text)
    return capture_sources(solution, reference, folder, tell)


def test_a_call_at_import_is_recorded_as_torch_composes_it(tmp_path: Path) -> None:
    call = (
        'm = load_inline("ext", cpp_sources="int f();", cuda_sources=["__global__ void k() {}"],\n'
        '    functions=["f"], extra_cuda_cflags=["-O3"], extra_include_paths=["here"])\n'
    )
    reply = _capture(tmp_path, IMPORTS + 'print("{}")\n' + call + MODEL)

    assert reply.failure is None
    (recipe,) = reply.recipes
    assert recipe.library == "ext.so"
    assert recipe.functions == ("f",)
    assert recipe.rules == {"main.cpp": "compile", "cuda.cu": "cuda_compile"}
    main, cuda = recipe.files.values()
    assert main.startswith("#include <torch/extension.h>\nint f();\n")
    assert 'm.def("f", torch::wrap_pybind_function(f)' in main
    assert cuda.endswith("#include <cuda_runtime.h>\n__global__ void k() {}")
    for rule in recipe.rules.values():
        flags = recipe.flags(rule)
        assert "-DTORCH_EXTENSION_NAME=ext" in flags
        assert any(flag.startswith("-std=c++") for flag in flags)
        assert any(flag.startswith("-I") and flag.endswith("/here") for flag in flags)
        assert not any("arch" in flag for flag in flags)
        assert ("-O3" in flags) == (rule == "cuda_compile")


def test_the_reference_gives_the_constructors_arguments(tmp_path: Path) -> None:
    text = IMPORTS + (
        "class ModelNew(torch.nn.Module):\n"
        "    def __init__(self, width):\n"
        "        super().__init__()\n"
        '        self.m = load_inline(f"ext_{width}", "int a;")\n'
    )
    reply = _capture(tmp_path, text, "def get_init_inputs():\n    return [64]\n")
    assert reply.failure is None
    assert [recipe.library for recipe in reply.recipes] == ["ext_64.so"]


def test_a_lazy_build_is_reached_through_forward_on_meta_tensors(tmp_path: Path) -> None:
    text = IMPORTS + (
        "class ModelNew(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        '        assert x.device.type == "meta"\n'
        '        return load_inline("lazy", "int a;").run(x)\n'
    )
    reference = (
        "import torch\ndef get_inputs():\n    return [torch.rand(1 << 20, 1 << 20)]\n"
        "def get_init_inputs():\n    return []\n"
    )
    reply = _capture(tmp_path, text, reference)
    assert reply.failure is None
    assert [recipe.library for recipe in reply.recipes] == ["lazy.so"]


def test_a_library_opened_by_its_path_does_not_stop_the_capture(tmp_path: Path) -> None:
    text = IMPORTS + (
        "import ctypes\n"
        'p = load_inline("one", "int a;", no_implicit_headers=True, is_python_module=False)\n'
        "lib = ctypes.CDLL(p)\nlib.launch.argtypes = [ctypes.c_void_p]\n"
        'load_inline("two", "int b;")\n'
    )
    reply = _capture(tmp_path, text + MODEL)
    assert reply.failure is None
    assert [recipe.library for recipe in reply.recipes] == ["one.so", "two.so"]
    assert reply.recipes[0].files["main.cpp"] == "int a;"


def test_files_given_to_load_are_read_where_they_lie(tmp_path: Path) -> None:
    (tmp_path / "own.cpp").write_text("int own;\n")
    call = f"load('ext', ['{tmp_path}/own.cpp'])\n"
    text = f"import torch\nfrom torch.utils.cpp_extension import load\n{call}"
    reply = _capture(tmp_path, text + MODEL)
    (recipe,) = reply.recipes
    assert recipe.files == {f"{tmp_path}/own.cpp": "int own;\n"}


@pytest.mark.parametrize(
    ("call", "kind", "part"),
    [
        ('load_inline("ext", cuda_sources="int a;")', "TypeError", "cpp_sources"),
        ('load_inline("ext", "int a;", functions=7)', "ValueError", "functions"),
        ('load_inline("ext", None)', "AttributeError", "insert"),
    ],
)
def test_a_call_that_torch_refuses_is_refused_even_after_another(
    tmp_path: Path, call: str, kind: str, part: str
) -> None:
    reply = _capture(tmp_path, f'{IMPORTS}load_inline("good", "int a;")\n\n{call}\n{MODEL}')
    assert reply.failure is not None
    assert (reply.failure.phase, reply.failure.type) == ("import", kind)
    assert part in reply.failure.message
    assert reply.failure.line == 5


def test_what_a_stand_in_cannot_do_is_no_failure(tmp_path: Path) -> None:
    text = f'{IMPORTS}m = load_inline("ext", "int a;")\nassert m.answer() == 42\n{MODEL}'
    reply = _capture(tmp_path, text)
    assert reply.failure is None
    assert len(reply.recipes) == 1


def test_a_failing_import_is_reported_at_its_line(tmp_path: Path) -> None:
    reply = _capture(tmp_path, "import torch\n\nimport not_installed_anywhere\n")
    assert reply.failure is not None
    assert (reply.failure.phase, reply.failure.line) == ("import", 3)
    assert reply.failure.type == "ModuleNotFoundError"


def test_a_syntax_error_is_reported_at_its_line(tmp_path: Path) -> None:
    reply = _capture(tmp_path, "import torch\nx = = 1\n")
    assert reply.failure is not None
    assert (reply.failure.type, reply.failure.line) == ("SyntaxError", 2)


def test_a_solution_without_a_build_is_told_so(tmp_path: Path) -> None:
    reply = _capture(
        tmp_path,
        "import torch\n" + MODEL,
        "import torch\ndef get_inputs():\n    return [torch.rand(2)]\n",
    )
    assert reply.failure is None
    assert not reply.recipes


def test_a_machine_that_cannot_contain_it_is_to_blame_and_not_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def impossible(*given: Any) -> Plan:
        return msgspec.structs.replace(plan_to_build(*given), writable=("/no/such/folder",))

    monkeypatch.setattr("kernelgen.build.capture.plan_to_build", impossible)
    with pytest.raises(KernelgenFault, match=r"could not contain .*/no/such/folder.*doctor"):
        _capture(tmp_path, IMPORTS + MODEL)


def test_a_file_that_prints_the_same_words_is_still_to_blame(tmp_path: Path) -> None:
    code = "import os\nprint('kernelgen could not contain it: no', flush=True)\nos._exit(1)\n"
    with pytest.raises(CaptureError, match="exit code 1"):
        _capture(tmp_path, code)


def test_a_hang_ends_at_the_deadline(tmp_path: Path) -> None:
    solution = tmp_path / "solution.py"
    solution.write_text("import time\ntime.sleep(600)\n")
    begin = time.monotonic()
    with pytest.raises(CaptureError, match="killed: it took longer than 4 s"):
        capture_sources(solution, None, tmp_path, tell, timeout_s=4)
    assert time.monotonic() - begin < 60


def test_a_crash_is_named_by_its_signal(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="SIGSEGV"):
        _capture(tmp_path, "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")


def test_leaving_early_is_reported_with_what_was_printed(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=r"exit code 3(?s:.*)goodbye"):
        _capture(tmp_path, 'import os\nprint("goodbye", flush=True)\nos._exit(3)\n')


FORGES = """
import os
for fd in range(1, 64):
    for forge in (os.ftruncate, lambda fd, at: os.lseek(fd, at, os.SEEK_SET)):
        try:
            forge(fd, 0)
        except OSError:
            pass
    try:
        os.write(fd, b"kernelgen could not contain it: no")
    except OSError:
        pass
os._exit(125)
"""


def test_no_word_of_the_files_is_taken_for_the_machines(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="it sent something that is no reply"):
        _capture(tmp_path, FORGES)


def test_a_file_that_builds_without_end_is_told_so(tmp_path: Path) -> None:
    text = f'{IMPORTS}for n in range(100):\n    load_inline(f"ext{{n}}", "int a;")\n{MODEL}'
    with pytest.raises(CaptureError, match="more than 64 extensions"):
        _capture(tmp_path, text)


def test_the_process_that_tells_has_no_model(tmp_path: Path) -> None:
    reference = (
        "class Model:\n    pass\ndef get_inputs():\n    return []\nget_init_inputs = get_inputs\n"
    )
    text = (
        "import gc, sys\nfound = [one for one in gc.get_objects() if isinstance(one, type)]\n"
        "assert not [one for one in found if one.__name__ == 'Mod' + 'el']\n"
        "frame = sys._getframe()\nwhile frame is not None:\n"
        "    assert 'class Mod' + 'el:' not in repr(frame.f_locals)\n    frame = frame.f_back\n"
        "class ModelNew:\n    def to(self, device):\n        import kernelgen_reference as told\n"
        "        assert told.get_inputs() == [] and not hasattr(told, 'Mod' + 'el')\n"
        "        return lambda: None\n"
    )
    assert _capture(tmp_path, text, reference).failure is None


@pytest.mark.parametrize("lends", [True, False])
def test_a_reference_lends_names_only_where_it_may(tmp_path: Path, *, lends: bool) -> None:
    file = tmp_path / "borrows.py"
    file.write_text("class ModelNew(nn.Module):\n    def forward(self):\n        return size\n")
    reply = capture_sources(file, "import torch.nn as nn\nsize = 3\n", tmp_path, tell, lends=lends)
    assert (reply.failure is None) == lends
