"""Names that a reference lends: all of KernelBench's one namespace, but no way to its Model."""

import pytest

from kernelgen.problem.python_text import bound_names
from kernelgen.solution.lending import construction_source, lent_to

REFERENCE = """
from __future__ import annotations
from math import *
import torch
from torch import nn

width = 6
sizes = [width]
sizes.append(7)
torch.manual_seed(width)

class Block(nn.Module):
    def forward(self, x):
        return x * sqrt(width)

class Model(nn.Module):
    def __init__(self, sizes):
        self.block = Block()

def get_inputs():
    return [torch.rand(size) for size in sizes]

def get_init_inputs():
    return [sizes]

if __name__ == "__main__":
    print(Model(*get_init_inputs())(*get_inputs()))
"""


@pytest.mark.parametrize("name", ["width", "sizes", "Block", "get_inputs", "torch", "floor"])
def test_what_is_lacked_is_lent_with_all_that_it_needs(name: str) -> None:
    found: dict[str, object] = {}
    exec(lent_to(f"x = {name}", REFERENCE).source, found)
    assert name in found
    assert found.get("sizes", [6, 7]) == [6, 7]
    assert "Model" not in found
    assert ("Block" in found) == (name == "Block")


@pytest.mark.parametrize(
    "text",
    [
        "width = 2 * width",
        "width += 1",
        "if 1 > 2:\n    width = 3\nx = width",
        "class Block( Block ): pass",
        "from os import *\nx = width",
        "from os import *\ndef f():\n    return Block",
        "try:\n    width = width + 1\nfinally:\n    pass",
    ],
)
def test_a_name_that_the_text_binds_as_well_is_lent_where_it_may_need_it(text: str) -> None:
    found: dict[str, object] = {"__name__": "candidate"}
    exec(lent_to(text, REFERENCE).source, found)
    exec(text, found)


@pytest.mark.parametrize(
    "text",
    [
        "width = 3\nx = width",
        "def f():\n    return width\nwidth = 1",
        "height, width = 2, 3\ndef f():\n    return width",
        "(a, *sizes), b = [1, 2], 3\ndef f():\n    return sizes",
        "x = len('')",
        "x = (",
    ],
)
def test_nothing_is_lent_that_is_not_needed(text: str) -> None:
    assert lent_to(text, REFERENCE).source == ""


def test_what_is_lent_is_told_at_its_first_use() -> None:
    uses = lent_to("\nwidth = width\ndef f():\n    return Block, Model", REFERENCE).uses
    assert [(use.line, use.name) for use in uses] == [(2, "width"), (4, "Block")]


ALIAS = "class Net(nn.Module): pass\nModel = Net\n"
# Names that each module binds, and which of it leads to Model.
WAYS = {
    "alias": ("class Model: pass\nX = Model\nY = X\n", {"X", "Y"}),
    "named so later": (ALIAS, {"Net"}),
    "instance": ("class Model: pass\nx = Model()\npair = 1, x\n", {"x", "pair"}),
    "subclass": ("class Model: pass\nclass Sub(Model): pass\n", {"Sub"}),
    "base": ("class Base: pass\nclass Model(Base): pass\nclass Other(Base): pass\n",
             {"Base", "Other"}),
    "function": ("class Model: pass\ndef build(): return Model()\ndef more(): return build()\n",
                 {"build", "more"}),
    "method of another": ("class Model: pass\nclass A:\n  def f(self): return Model\n", {"A"}),
    "made by a function": ("def make():\n  class M: pass\n  return M\nModel = make()\n", {"make"}),
    "is a function": ("class Net: pass\ndef Model(): return Net()\n", {"Net"}),
    "its forward": ("def run(self, x): return x\nclass Model:\n  forward = run\n", {"run"}),
    "its forward, later": ("def run(self, x): return x\nclass Model: pass\nModel.forward = run\n",
                           {"run"}),
    "text": ("code = 'class Model: pass'\nspace = {}\nexec(code, space)\nModel = space['Model']\n",
             {"code", "space"}),
    "kept in another": ("class Model: pass\nclass A: pass\nA.held = Model\n", {"A"}),
    "in a branch": ("if True:\n  class Net: pass\n  Model = Net\n", {"Net"}),
    "walrus": ("class Model: pass\nx = [y := Model]\n", {"x", "y"}),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_no_way_to_model_is_lent(way: str) -> None:
    text, leads = WAYS[way]
    whole = f"from torch import nn\nsize = 3\n{text}def get_inputs(): return [size]\n"
    bound = bound_names(whole)
    assert leads <= bound
    asked = "\n".join(f"use_{name} = {name}" for name in sorted(bound))
    source = lent_to(asked, whole).source
    assert bound_names(source) == bound - leads - {"Model"}
    assert "Model" not in source
    assert bound_names(construction_source(whole)) == {"size", "get_inputs"}


def test_a_registry_is_lent_without_what_was_put_into_it() -> None:
    text = (
        "class Model: pass\nkinds = []\nkinds.append(Model)\nfor n in (1,): kinds.append(Model)\n"
    )
    found: dict[str, object] = {}
    exec(lent_to("x = kinds", text).source, found)
    assert found["kinds"] == []


def test_arguments_need_no_model() -> None:
    source = construction_source(REFERENCE)
    found: dict[str, object] = {"__name__": "reference"}
    exec(source, found)
    assert "Model" not in source
    assert found["get_init_inputs"]() == [[6, 7]]  # type: ignore[operator]
