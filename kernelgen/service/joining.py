"""How a program joins a Ray cluster, or says in one line why it cannot."""

import os
import re
import signal
import socket
import threading
from typing import Any

from kernelgen.errors import UserError

_ADDRESS = re.compile(r"(?:ray://)?(?P<host>[^/\s]+):(?P<port>\d+)")
_REACH_S = 10.0


def import_ray() -> Any:
    """Return the module; raises UserError if the extra is not installed."""
    try:
        import ray
    except ImportError as error:
        raise UserError("--ray needs the extra: pip install 'kernelgen[ray]'") from error
    return ray


def join(ray: Any, address: str) -> bool:
    """Join a cluster; return whether this program had not joined one already.

    Raises:
        UserError: it cannot be reached.
    """
    if ray.is_initialized():
        return False
    _reach(address)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (OSError, RuntimeError, ValueError) as error:
        raise UserError(f"--ray {address}: {str(error).splitlines()[0]}") from error
    finally:
        # Ray takes SIGTERM for itself, and would end with another exit code.
        if threading.current_thread() is threading.main_thread():
            for number, handler in handlers.items():
                signal.signal(number, handler)
    return True


def _reach(address: str) -> None:
    """Make sure that somebody listens: Ray itself waits for minutes, and then ends the program."""
    named = os.environ.get("RAY_ADDRESS", "") if address == "auto" else address
    if not named or (address == "auto" and named == "auto"):
        return
    parts = _ADDRESS.fullmatch(named)
    if parts is None:
        raise UserError(f"--ray {named}: not an address; write auto, or HOST:PORT as 10.0.0.1:6379")
    try:
        socket.create_connection((parts["host"], int(parts["port"])), _REACH_S).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"--ray {named}: no cluster can be reached there: {reason}; `ray start --head` "
            "prints a cluster's address"
        ) from error
