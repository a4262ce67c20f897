"""`kernelgen serve`: verdicts over HTTP."""

import ipaddress
from pathlib import Path
from typing import Any

import click

from kernelgen.cli import options
from kernelgen.cli.kernelbench import problem_files
from kernelgen.errors import UserError
from kernelgen.grading.options import GradeOptions
from kernelgen.grading.queue.journal import Journal


@click.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to bind to.")
@click.option("--port", type=click.IntRange(0, 65535), default=8642, show_default=True)
@options.path(
    "--state",
    "DIR",
    "Keep accepted questions and all verdicts here; a restart goes on with them.",
    required=True,
)
@options.path(
    "--token-file",
    "FILE",
    "Clients send its one line as a bearer token; needed for other addresses than loopback.",
)
@options.flag(
    "--allow-references", "Take references from clients too. They run outside containment."
)
@click.option(
    "--queue", type=click.IntRange(min=1), default=1000, show_default=True, metavar="N",
    help="At most so many questions wait or are in work; more get 429.",
)  # fmt: skip
@click.option(
    "--body-limit", "body_bytes", type=options.bytes_of, default="4MiB", show_default=True,
    metavar="SIZE", help="The longest request.",
)  # fmt: skip
@click.option(
    "--kernelbench", type=options.PATH, metavar="PATH",
    help="KernelBench's checkout: clients name its problems, such as 1/19.",
)  # fmt: skip
@options.DEVICE
@options.jobs("Build and check so many candidates at once on a GPU.")
@options.GPUS
@options.BASELINE
@options.NO_TIMING
@options.timing_budget("candidate")
@options.CALL_TIMEOUT
@options.sandbox()
def command(  # noqa: PLR0913 (one parameter an option)
    *,
    host: str,
    port: int,
    state: Path,
    token_file: Path | None,
    allow_references: bool,
    queue: int,
    body_bytes: int,
    kernelbench: Path | None,
    jobs: int | None,
    gpus: tuple[str, ...] | None,
    no_timing: bool,
    **given: Any,
) -> int:
    """Grade what clients send, until ^C.

    POST /grade takes a candidate and answers with its job; GET /jobs/ID has the verdict, /jobs
    those without one. GET /problems, /health, /metrics (Prometheus) and /schema/openapi.json tell
    of the service itself. `kernelgen grade --remote` is its client.
    """
    try:
        import uvicorn

        from kernelgen.service.desk import Settings
        from kernelgen.service.http import application
    except ImportError as error:
        message = f"serve needs the package {error.name}: pip install 'kernelgen[serve]'"
        raise UserError(message) from error
    from kernelgen.build.toolchain import builds_folder
    from kernelgen.grading.supervisor.grade import usual_jobs

    token = "" if token_file is None else _token(token_file)
    if not token and not _is_loopback(host):
        raise UserError(f"--host {host}: others can reach it; give --token-file FILE as well")
    files = problem_files(kernelbench, None, None)
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        builds = builds_folder()
    except OSError as error:
        raise UserError(f"{error.filename}: cannot be made: {error.strerror}") from error
    asked = GradeOptions(time=not no_timing, build_cache=builds, **given)
    settings = Settings(
        state=state,
        options=asked,
        jobs=jobs or usual_jobs(asked, len(gpus or "1")),
        gpus=gpus or (),
        queue=queue,
        body_bytes=body_bytes,
        token=token,
        takes_references=allow_references,
        problems={f"{level}/{number}": file for level, number, file in files},
    )
    with Journal(state / "verdicts.journal") as journal:
        app = application(settings, journal, lambda line: click.echo(line, err=True))
        click.echo(f"answering at {host}, port {port}; ^C ends it", err=True)
        # A line a request goes to stdout.
        uvicorn.run(app, host=host, port=port, log_level="info")
    return 0


def _token(file: Path) -> str:
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--token-file {file}: cannot be read: {error}") from error
    if not token.isascii() or not token.isprintable() or len(token.split()) != 1:
        raise UserError(f"--token-file {file}: expected one line of printable ASCII, no spaces")
    return token


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
