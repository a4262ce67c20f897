"""The ways in which graders of kernels have been fooled, each with a name of its own.

Each class has a candidate in the corpus whose header names it (`exploit: T05`), or a reason why no
candidate can attack this grader in that way. `kernelgen selftest --classes` shows the table, and a
test holds it. A new trick that is in none of them gets the next free number of its family.
"""

from enum import Enum

import msgspec


class Family(str, Enum):
    """What an attack is aimed at; the first letter of a class's id tells it."""

    TIMING = "timing"
    CACHING = "caching"
    MEMORY = "memory"
    SEMANTICS = "semantics"
    HARNESS = "harness"


class ExploitClass(msgspec.Struct, frozen=True, kw_only=True):
    """A class of attacks, such as `T05`, and its name in a few words.

    Attributes:
        outside: why no candidate can do it to this grader; "" where one can.
    """

    id: str
    name: str
    outside: str = ""

    @property
    def family(self) -> Family:
        """Return what it is aimed at."""
        return next(family for family in Family if family.value[0].upper() == self.id[0])


_NAMES = """
T01 work left on a side stream that Python made
T02 work left on a side stream that C++ made
T04 a Python thread that computes after forward has returned
T05 a native thread that computes after forward has returned
T06 an output that is only computed when somebody looks at it
T08 an output whose copy to or from the host is still under way
T09 CUDA events that report a time of the candidate's choice
T10 Python's clock or torch.cuda.synchronize replaced
T11 the statistics over the samples replaced
T12 the module that takes the times replaced
T13 the timer's machine code or its symbol table rewritten
T14 times already taken overwritten in memory
T16 one call that does the work of all, the others do none
T17 work put off until somebody synchronises
T19 work done on the host, out of sight of a GPU clock
T20 work done on another GPU
T21 the first call captured as a CUDA graph and replayed on old inputs
T22 a capture as a graph that misses the work, or is left open
T23 honest while it is checked, cheap or wrong once it is timed
T25 results computed while being imported or constructed
T26 inputs kept in the L2 cache through the flush
T27 inputs that are in the L2 cache because the flush is skipped or cut short
T28 the GPU's clock raised
T29 the baseline slowed down
T30 TF32 switched on for itself alone
T31 inputs overwritten with values that are faster to compute with
T32 a time too short to be true
T33 sent in again until the noise is kind
C01 results remembered by address
C02 results remembered by a few of the inputs' values
C03 the last call's result, or that of the call with the same number
C04 results remembered by shape
C06 a table of results that were computed elsewhere
C08 weights repacked outside the timed calls
M01 an output left as it was allocated, in the hope of old results there
M02 inputs overwritten before a reference reads them
M03 an input, or a view of one, handed back as the output
S01 zeros, where the tolerance is wider than the signal
S02 the mean, or another value that needs no work
S03 an output that is the same for all inputs, because of the problem or of what was made of it
S04 a problem most of whose work has no effect
S05 parameters ignored because they start as ones and zeros
S06 a branch ignored because its weights start as zeros
S07 a part of the output not computed
S08 a cheap algorithm for the structure that the inputs happen to have
S09 right for the benchmark's shape and no other
S10 a lower precision inside
S11 a fast approximation of a function
S12 sums held in a lower precision
S13 an output of another shape that broadcasts
S15 reads out of bounds, or a race, that are right by luck
S16 random numbers reproduced by their seed
S17 a library's kernels in place of its own
S18 a fallback to torch when its own kernel fails
S19 the reference's own module inherited or copied
S20 a kernel that is there for show
S22 the reference handed to torch.compile
S23 a package fetched or imported that holds the solution
S25 the problem's constants redefined
S26 gradients that are zero or absent
S27 inputs recomputed from a known seed
S28 the generator of the inputs replaced
H01 the comparison replaced
H03 the grader's modules or globals changed
H04 expected values read from the frames of the callers
H06 expected values found through the garbage collector
H07 expected values found in the GPU's memory
H08 expected values reached through memory shared between processes
H09 the reference called
H10 the place where a grader keeps its count of mismatches set to zero
H11 secrets searched for in the process's memory
H12 a verdict written to a descriptor that was found open
H13 a descriptor replaced so that the grader's words are its own
H15 another process's memory read or written through the kernel
H17 a time printed
H18 a verdict printed
H19 the process ended as if all had gone well
H20 one right result, then an end
H21 a result file left where a grader might look
H22 an object that runs when it is unpickled
H23 a path that leads out of the folder where it may write
H25 the seed looked for in an environment
H26 global settings of torch left changed
H27 the grader's process left poisoned for the next candidate
H28 another candidate's compiled extension replaced
H29 an attack by way of the compiler
H31 words to whoever or whatever judges the source
H32 a process left behind
H33 the reference made to fail
H35 honest only where it sees that it is being probed
"""

# What is no act of a candidate here, and why.
_OUTSIDE = {
    "T28": (
        "Setting clocks takes root on the host, and then nothing on that machine can be trusted; "
        "candidate and baseline are timed in turn, so that a new clock moves both."
    ),
    "T33": (
        "No act of one file: a verdict carries its samples and an interval, and whoever accepts "
        "many runs has to judge by them."
    ),
    "S04": (
        "A fault of the problem: `kernelgen lint` names inputs and parameters that make no "
        "difference, and leaving such work out is allowed."
    ),
    "S26": "Only forward is graded, and a verdict claims nothing about gradients.",
}

CLASSES = {
    number: ExploitClass(id=number, name=name, outside=_OUTSIDE.get(number, ""))
    for number, _, name in (line.partition(" ") for line in _NAMES.strip().splitlines())
}
