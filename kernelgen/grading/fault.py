"""`ProblemFault`: what is wrong is the problem itself."""


class ProblemFault(Exception):  # noqa: N818 (a finding about the problem)
    """The problem's own code fails or contradicts itself; the message says where and how."""
