"""Options and guards that all tests share."""

import signal
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import what_is_missing
from tiers import mark_the_rest
from warm_lane import close_lane, kept

from kernelgen.build.toolchain import find_toolkit
from kernelgen.errors import ToolchainError
from kernelgen.grading.supervisor.servers import ZYGOTES
from kernelgen.tracing import capture


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--require-gpu", action="store_true", help="fail gpu tests without a GPU")
    parser.addoption("--require-nvcc", action="store_true", help="fail nvcc tests without nvcc")
    parser.addoption(
        "--require-browser", action="store_true", help="fail browser tests without Chromium"
    )


def pytest_configure(config: pytest.Config) -> None:
    # torch says so on import where numpy is absent, as it may be: nothing here needs numpy.
    config.addinivalue_line("filterwarnings", "ignore:Failed to initialize NumPy:UserWarning")
    # A shell starts background jobs with ^C ignored, and nohup a command with SIGHUP ignored: what
    # the tests start would inherit that.
    for number, usual in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, usual)


@pytest.hookimpl(tryfirst=True)  # before -m looks at the markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_the_rest(items)


def has_gpu() -> bool:
    """Return whether torch sees a CUDA device."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch
    return bool(torch.cuda.is_available())


def has_nvcc() -> bool:
    """Return whether kernelgen finds an nvcc: on PATH or in one of the other places it looks at."""
    try:
        find_toolkit()
    except ToolchainError:
        return False
    return True


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("nvcc") and not has_nvcc():
        _missing(item, "--require-nvcc", "no nvcc")
    if item.get_closest_marker("gpu") and not has_gpu():
        _missing(item, "--require-gpu", "no CUDA device")
    if item.get_closest_marker("browser") and (missing := what_is_missing()):
        _missing(item, "--require-browser", missing)


def _missing(item: pytest.Item, option: str, what: str) -> None:
    if item.config.getoption(option):
        pytest.fail(f"{what}, and {option} was given", pytrace=False)
    pytest.skip(what)


@pytest.fixture(scope="session", autouse=True)
def own_cache(pytestconfig: pytest.Config) -> Iterator[None]:
    """Leave the user's cache as it is, the last run in it above all."""
    assert pytestconfig.cache is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(pytestconfig.cache.mkdir("home")))
        yield


@pytest.fixture(scope="session")
def compiled_folder(pytestconfig: pytest.Config) -> Path:
    """Where what tests compile is kept for other processes and later runs."""
    assert pytestconfig.cache is not None
    return pytestconfig.cache.mkdir("compiled")


@pytest.fixture(scope="module", autouse=True)
def _nothing_outlives_a_module() -> Iterator[None]:
    yield
    close_lane()


@pytest.fixture(scope="session", autouse=True)
def _torch_is_imported_once() -> Iterator[None]:
    with kept(ZYGOTES):
        yield
    capture.close()


@pytest.fixture
def repository() -> Path:
    """The repository's root."""
    return Path(__file__).resolve().parent.parent
