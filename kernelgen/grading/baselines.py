"""The baselines: the reference as written, and under torch.compile, timed like a candidate."""

from __future__ import annotations

from typing import Any

import torch

from kernelgen.grading import messages as m
from kernelgen.grading.clock import Clock
from kernelgen.grading.device_loss import is_device_loss
from kernelgen.grading.fault import ProblemFault
from kernelgen.grading.precision import read_pins
from kernelgen.grading.reference import Reference
from kernelgen.grading.values import copied


class Baselines:
    """Times a reference in its own process, under the same pins as a candidate.

    Args:
        clock: as the candidate host's.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._compiled: Any = None

    def warm(
        self, names: tuple[str, ...], reference: Reference, inputs: list[Any]
    ) -> m.BaselinesReady:
        """Compile and run each named one once; say which can be timed, and why others cannot."""
        ready, failed = [], {}
        for name in names:
            why = self._warm(name, reference, inputs)
            if why is None:
                ready.append(name)
            else:
                failed[name] = why
        return m.BaselinesReady(ready=tuple(ready), failed=failed)

    def _warm(self, name: str, reference: Reference, inputs: list[Any]) -> str | None:
        try:
            if name == "compile":
                self._compiled = torch.compile(reference.model)
            self._run(name, reference, inputs)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            if is_device_loss(error):
                raise
            first_line = next(iter(str(error).splitlines()), "")
            return f"{type(error).__name__}: {first_line}"
        return None

    def time(self, name: str, reference: Reference, inputs: list[Any]) -> m.BaselineTimed:
        """Run one once.

        Raises:
            ProblemFault: the reference has changed the precision settings.
        """
        elapsed_ms = self._run(name, reference, inputs)
        pins = read_pins()
        if (
            pins["cuda_matmul_tf32"]
            or pins["cudnn_conv_tf32"]
            or pins["default_dtype"] != "float32"
        ):
            raise ProblemFault(f"the reference changed the precision settings: {pins}")
        return m.BaselineTimed(elapsed_ms=elapsed_ms)

    def _run(self, name: str, reference: Reference, inputs: list[Any]) -> float:
        function = self._compiled if name == "compile" else reference.model
        given = copied(inputs) if reference.mutates_inputs else inputs
        with torch.no_grad():
            return self._clock.call(lambda: function(*given)).finish()
