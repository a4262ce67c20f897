"""Every record that crosses between the supervisor, the oracle and the candidate's host."""

from kernelgen.grading.wire.messages.candidate import *  # noqa: F403
from kernelgen.grading.wire.messages.carried import *  # noqa: F403
from kernelgen.grading.wire.messages.oracle import *  # noqa: F403
