"""Odd Models: reference files composed of parts, and a comparison of rendered ones with eager.

Every step takes a float32 tensor `{x}` of any rank from 2 to 4 to one of the same shape; `{y}` is
another input of that shape, `{w}` a parameter of the last size, which is 12.
"""

import copy
import hashlib
import random
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import msgspec

from kernelgen.errors import UserError
from kernelgen.problem.library import load_problem
from kernelgen.problem.record import Backend
from kernelgen.rendering.solution import render
from kernelgen.solution.importing import import_file

# Statements of forward; `; result EXPRESSION` adds an output, `init STATEMENT` one of __init__.
STEPS = {
    "relu": "{x} = torch.relu({x}) + {y}",
    "gelu": "{x} = F.gelu({x}) * {w}",
    "bool_sum": "{x} = {x} * (({x} > 0) + ({y} > 0)); result ({x} > 0) + ({y} > 1)",
    "bool_product": "m = ({x} > 0) * ({y} > 0); {x} = {x} * m.float(); result m",
    "bool_where": "m = ({x} > 0) & ~({y} < 0.5); {x} = torch.where(m, {x}, {y}); result m ^ True",
    "bool_max": "{x} = {x} + torch.maximum({x} > 0, {y} > 0); result ({x} > 0).any(-1)",
    "bool_counts": "{x} = {x} / ({y} > 0).sum(-1, keepdim=True).clamp(min=1)",
    "int_result": "{x} = {x} + 1; result ({y} * 100).long()",
    "int_compare": "i = ({y} * 4).round().long(); {x} = {x} * (i % 3 == 1) + (i // 2 > -1)",
    "int_division": "i = ({y} * 9).int(); {x} = {x} + i / 4; result i % -5",
    "int_big": "i = ({y} > 0).long() + 16777216; {x} = {x} * (i == 16777217); result i + i",
    "int_product": "{x} = {x} * 0.5; result (({y} > 0).long() + 3) * 5000000001",
    "double": "{x} = ({x}.double() * 0.1 + {y}).float(); result {y}.double() / 3",
    "half": "{x} = ({y}.half() * 2).float() + {x}",
    "bfloat": "{x} = {y}.bfloat16().float() * {x}",
    "byte": "{x} = {x} + ({y}.abs() * 10).to(torch.uint8); result ({y}.abs() * 30).to(torch.uint8)",
    "promotion": "{x} = {x} + torch.ones((), dtype=torch.float64); result ({y} > 0) + 1.5",
    "centre": "{x} = {x} - {x}.mean()",
    "clamp": "{x} = {x}.clamp(max=2.0).clamp(min={y} - 1)",
    "power": "{x} = {x}.abs() ** 0.5 + {y} ** 3 - 2 ** {y}.clamp(-1, 1)",
    "rounding": "{x} = {y}.floor() + {y}.frac() + {y}.sign() * {y}.trunc() + {x}",
    "remainder": "{x} = {x} + {y} % 0.75 - torch.fmod({y}, -0.5)",
    "infinite": "{x} = torch.softmax({x}.masked_fill({y} > 1, float('-inf')), -1)",
    "not_a_number": "{x} = torch.nan_to_num({y} / 0.0, nan=1.0, posinf=2.0, neginf=-3.0) + {x}",
    "extremes": "{x} = {x} + 1e-30; result F.gelu({y} * float('inf')), torch.sigmoid({y} * 1e30)",
    "softmax_rows": "{x} = torch.softmax({x}, -2) - F.log_softmax({y}, -1)",
    "norm": "{x} = F.layer_norm({x}, (12,), {w}) + F.normalize({y}, dim=-1)",
    "variance": "{x} = ({x} - {x}.mean(-1, True)) / ({x}.std(-1, keepdim=True) + 1.0)",
    "largest": "{x} = {x} - {x}.amax(-2, keepdim=True); result {y}.argmax(-1), {y}.max(-2).values",
    "cumulative": "{x} = {x} + {y}.cumsum(-1).tanh(); result {y}.cummax(-1)",
    "sorted": "{x} = {x} + {y}.sort(-1, descending=True)[0]; result {y}.topk(2, -1)",
    "reduced": "{x} = {x} * 0.5; "
    "result {x}.abs().sum(), {y}.logsumexp(-1), {y}.norm(dim=-2), {y}.prod(-1)",
    "gates": "a, b = {x}.chunk(2, -1); {x} = torch.cat([a * torch.sigmoid(b), b.tanh()], -1)",
    "lstm_gates": "i, f, g = {x}.chunk(3, -1); c = f.sigmoid() * i.tanh() + g; "
    "{x} = torch.cat([c, c.tanh(), i], -1)",
    "reparametrise": "mu, v = {x}.split(6, -1); result (v.exp() + mu ** 2).sum(-1), mu.mean()",
    "one_chunk": "(a,) = {x}.chunk(1, -1); {x} = a * 2 + {y}",
    "one_split": "a = {x}.split(12, -1)[0]; {x} = torch.tanh(a)",
    "uneven": "a, b, c = torch.split({x}, [5, 1, 6], -1); {x} = torch.cat([c * b, b, a + 1], -1)",
    "nested_split": "a, b = {x}.chunk(2, -1); c, d = a.chunk(2, -1); "
    "{x} = torch.cat([d.exp().clamp(max=9), c.relu(), b], -1)",
    "unbind": "r = {x}.unbind(-1); {x} = torch.stack([r[-1].relu(), *r[:-1]], -1)",
    "transposed": "{x} = ({x}.transpose(-1, -2) * 2).relu().transpose(-1, -2)",
    "flip": "{x} = {x}.flip(-1) + {y}.flip((-1, -2)).roll(2, -1)",
    "steps": "{x} = torch.cat([{x}[..., ::2].tanh(), {x}[..., 1::2]], -1)",
    "narrow": "{x} = {x} + {x}.narrow(-1, 3, 1) * {y}.select(-1, 2).unsqueeze(-1)",
    "expand": "{x} = {x}[..., :1].expand_as({x}) + {y}[..., :1, :].expand({y}.shape)",
    "as_strided": "{x} = {x} + torch.as_strided({x}.relu(), (12,), (1,), 2)",
    "strided_transpose": "t = ({x} + 1).transpose(-1, -2); "
    "{x} = {x} + t.as_strided((12,), (1,), 1)",
    "reshape": "{x} = ({x}.reshape(-1, 4) * 2).relu().view({x}.shape)",
    "unflatten": "{x} = {x}.unflatten(-1, (3, 4)).transpose(-1, -2).relu().flatten(-2)",
    "pad": "{x} = F.pad({x}, (1, 1), value=0.5)[..., 2:].tanh()",
    "triangle": "{x} = {x}.tril() + {y}.triu(1); result {y}.diagonal(0, -1, -2)",
    "gather": "{x} = {x}.gather(-1, {y}.argsort(-1)) + {x}[..., [0] * 12]",
    "repeat": "{x} = {x}[..., :3].repeat_interleave(4, -1) + {y}[..., :1].tile(12)",
    "dropout": "{x} = F.dropout({x}, 0.5)",
    "dropout_after_permute": "{x} = F.dropout({x}.transpose(-1, -2), 0.3).transpose(-1, -2)",
    "dropout_of_steps": "{x} = torch.cat([F.dropout({x}[..., ::2], 0.4), {x}[..., 1::2]], -1)",
    "rand_like": "{x} = {x} + torch.rand_like({x}) * torch.randn_like({y}.mT).mean()",
    "unused_draw": "_ = torch.randn(3); {x} = {x} + torch.rand({x}.shape)",
    "bernoulli": "{x} = {x} * torch.bernoulli(torch.full_like({x}, 0.5)) + torch.randint(5, (12,))",
    "normal": "{x} = {x} + torch.empty_like({x}).normal_() + torch.randperm(12)",
    "draw_in_place": "t = {x}.clone().uniform_(); {x} = {x} * (t > 0.5) + t",
    "in_place": "t = {x}.clone(); t[..., 0] = 0.0; t[..., 1:3] += 1; {x} = t.mul_(2)",
    "in_place_view": "t = {x} * 1; t.transpose(-1, -2)[..., 0].add_(3); {x} = t",
    "masked_assign": "t = {x}.clone(); t[{y} > 0] = -1.5; {x} = t",
    "index_assign": "t = {x} + 0; t[..., [1, 4]] = {y}[..., [0, 2]]; {x} = t",
    "out": "t = torch.empty_like({x}); torch.mul({x}, 2, out=t); {x} = t",
    "augmented": "{x} = {x} + 0.0; {x} += {y}; {x} *= {w}; {x} -= 1",
    "constant": "{x} = {x} * torch.tensor(2.0) + torch.tensor([0.5] * 12)",
    "factories": "{x} = {x} + torch.arange(12) * torch.ones(12) - torch.linspace(0, 1, 12)",
    "eye": "{x} = {x} @ torch.eye(12).flip(0) + {x}.new_zeros(12)",
    "loop": "for n in range(3):\n    {x} = {x} + {y} * n if n % 2 else {x} * 0.5",
    "number": "s = {x}.shape[-1] ** -0.5; {x} = {x} * s + {x}.dim() / {x}.size(-1)",
    "size_remainder": "{x} = {x} * 2 if {x}.size(0) % 2 else {x} * 3",
    "size_branch": "{x} = {x} * min({y}.shape[0], 3) + (len({x}) > 4)",
    "contiguous": "{x} = {x} * 2 if {y}.is_contiguous() else {x} + {y}.stride(-1)",
    "pooled_size": "{x} = {x} + F.max_pool1d({x}.reshape(1, -1, 12), {x}.size(-1)).view("
    "{x}.shape[:-1] + (1,))",
    "data": "{x} = {x} + self.seen; self.seen.data = {x}.mean(); "
    "init self.register_buffer('seen', torch.zeros(()))",
    "environment": "{x} = {x} * (2 if 'SCALE' in os.environ else 3)",
    "function": "def inner(t, k=2): return t * k\n{x} = inner({x}) + (lambda t: t.relu())({y})",
    "einsum": "{x} = torch.einsum('...ij,...kj,...kl->...il', {x}, {y}, {y}) / 40",
    "attention": "{x} = F.scaled_dot_product_attention({x}, {y}, {x}, dropout_p=0.2)",
    "counter": "self.calls += 1; {x} = {x} * self.calls; "
    "init self.register_buffer('calls', torch.zeros(()))",
    "running_mean": "self.mean = 0.9 * self.mean + 0.1 * {x}.mean(); {x} = {x} - self.mean; "
    "init self.register_buffer('mean', torch.zeros(()))",
    "attribute": "{x} = {x} * self.table; init self.table = torch.rand(12)",
    "table_of_values": "{x} = {x} * self.most; init self.most = float(torch.rand(5).max())",
    "tensor_list": "{x} = {x} + self.shifts[1]; init self.shifts = [torch.rand(12), torch.rand(1)]",
    "linear": "{x} = self.line({x}).relu(); init self.line = nn.Linear(12, 12).to(torch.float32)",
    "sequential": "{x} = self.net({x}); "
    "init self.net = nn.Sequential(nn.Linear(12, 12), nn.GELU(), nn.Dropout(0.2))",
    "module_dict": "{x} = self.heads['cls-head']({x}); "
    "init self.heads = nn.ModuleDict({{'cls-head': nn.Linear(12, 12)}})",
    "parameter_list": "{x} = sum(p * {x} for p in self.scales); "
    "init self.scales = nn.ParameterList([nn.Parameter(torch.rand(12)) for _ in range(3)])",
    "number_keys": "{x} = self.layers[1]({x}); "
    "init self.layers = dict(enumerate([nn.Linear(12, 12), nn.Linear(12, 12)])); "
    "self.held = nn.ModuleList(self.layers.values())",
    "truncated": "{x} = {x} * self.t; init self.t = nn.Parameter(torch.empty(12)); "
    "nn.init.trunc_normal_(self.t, std=0.5)",
    "batch_norm": "{x} = self.bn({x}.reshape(-1, 12)).view({x}.shape); "
    "init self.bn = nn.BatchNorm1d(12)",
    "training": "if self.training: {x} = {x} * 2\nelse: {x} = {x} * 3",
    "autocast": "with torch.autocast('cpu', enabled=False): {x} = {x} @ {y}.mT @ {y} / 9",
    "random_number": "import random; {x} = {x} * random.random()",
    "complex": "{x} = torch.fft.rfft({x}).abs().sum(-1, keepdim=True) + {y}; "
    "result torch.fft.rfft({y})",
    "nonzero": "{x} = {x} * 2; result {y}[{y} > 0].sum()",
    "bits": "i = ({y} * 40).int(); {x} = {x} + ((i << 2 ^ i >> 1) & 15 | ~i); "
    "result i.to(torch.uint8) + 250",
    "scatter": "i = {y}.argsort(-1); {x} = {x}.scatter_add(-1, i, {y}) * F.one_hot(i, 12).sum(-1)",
    "rotary": "c = {y}[..., :6]; z = torch.view_as_complex(({x} * 1).unflatten(-1, (6, 2))); "
    "{x} = torch.view_as_real(z * torch.polar(torch.ones_like(c), c)).flatten(-2)",
    "moments": "v, m = torch.var_mean({x}, 0); {x} = {x} - m; result v, m",
    "steps_of_time": "h = {x}.mean(-2)\nfor n in range({x}.shape[-2]):\n"
    "    h = torch.tanh(h + {x}[..., n, :])\n{x} = {x} + h.unsqueeze(-2)",
    "strided_contiguous": "{x} = {x} + {y}.contiguous().as_strided((12,), (1,), 2)",
    "float_bits": "{x} = ({x}.view(torch.int32) & 0x7FFFFFFF).view(torch.float32) + {y}",
    "vmap": "{x} = torch.vmap(lambda t: t * t.sum())({x})",
}
# Values of inputs beside x and y, and statements of forward that use them as `{e}`.
EXTRAS = {
    "nothing": ("", ""),
    "float": ("0.3", "{x} = {x} * (1 - {e}) + {y} * {e}"),
    "int": ("3", "{x} = {x}.roll({e}, -1) * {e}"),
    "bool": ("True", "{x} = {x} * 2 if {e} else {y}"),
    "none": ("None", "{x} = {x} if {e} is None else {x} * {e}"),
    "text": ("'relu'", "{x} = getattr(torch, {e})({x})"),
    "list": ("[torch.randn(12), torch.randn(12)]", "{x} = {x} * {e}[0] + {e}[1]"),
    "tuple": ("(torch.randn(12), 2.0)", "h, k = {e}; {x} = {x} * h + k"),
    "dict": ("{'a': torch.randn(12), 'b': [torch.rand(1)]}", "{x} = {x} * {e}['a'] - {e}['b'][0]"),
    "empty": ("[]", "{x} = {x} * (1 + len({e}))"),
    "sizes": ("(3, 4)", "{x} = {x}.unflatten(-1, {e}).relu().flatten(-2)"),
    "dtype": ("torch.float64", "{x} = {x}.to({e}).float()"),
    "scalar": ("torch.tensor(1.5)", "{x} = {x} * {e}"),
    "mask": ("torch.rand({s}) > 0.5", "{x} = {x}.masked_fill({e}, 0.5); result {e} + {e}"),
    "ids": (
        "torch.randint(2**24, 2**24 + 4, (12,))",
        "{x} = {x} * ({e} > 16777217); result {e} * 3",
    ),
    "doubles": ("torch.rand(12).double()", "{x} = ({x} * {e}).float(); result {e} + 1"),
    "halves": ("torch.rand(12).half()", "{x} = {x} * {e}; result {e} * {e}"),
    "same": ("x", "{x} = {x} + {e} * 0.5"),
}
FORMS = (
    *("{x}", "({x},)", "[{x}, {r}]", "({x}, ({r}, None))", "{{'out': {x}, 3: [{r}]}}"),
    *("({x}, {x}.shape[0], 0.5, {r})", "[{x}, {x}]", "{{'a': (None, {x}), 'b': {{'c': [{r}]}}}}"),
    *(
        "Out({x}, {r})",
        "OrderedDict(z={x}, a={r})",
        "({x}, {y}, {x}.transpose(-1, -2))",
        "tuple([{x}] * 13)",
    ),
)
LAYOUTS = (
    *(
        "torch.randn({s})",
        "torch.randn({t}).transpose(-1, -2)",
        "torch.randn({s}).double().float()",
    ),
    *("torch.randn(1 + {b}, {r})[1:]", "torch.randn({s}, 2)[..., 1]", "torch.randn({s}).flip(0)"),
    *("torch.randn(1, {r}).expand({s})", "torch.randn({s}).to(memory_format={m})"),
    *("torch.rand({s}) * 1e3", "torch.randn({s}).index_fill(-1, torch.tensor([3]), 0.0)"),
    "torch.randn(4096).as_strided(({s},), torch.empty({s}).mul(1).stride(), 7)",
)
WORDS = (
    *(
        "x",
        "y",
        "NAN",
        "INFINITY",
        "M_PI",
        "float_",
        "tuple",
        "template_",
        "x_i",
        "y_i",
        "out_1",
        "EOF",
    ),
    *(
        "count",
        "stream",
        "shape",
        "tensors",
        "_launch",
        "_library",
        "_expect",
        "_readable",
        "ctypes",
    ),
    *(
        "torch_",
        "nn_",
        "int64_t",
        "assert_",
        "auto",
        "double",
        "std",
        "min",
        "main",
        "i",
        "run",
        "signed",
    ),
    *(
        "α",  # noqa: RUF001
        "größe",
        "числа",
        "名",
        "__x",
        "x__",
        "_",
        "self_",
        "out",
        "errno",
        "linux",
        "unix",
        "omp",
    ),
    *(
        "hashlib",
        "functools",
        "load_inline",
        "CPP_SOURCE",
        "module",
        "w_i",
        "constexpr",
        "long",
        "I",
    ),
)
# Text around Model: module level, first statements of __init__, of forward, and of the class.
FRAMES: dict[str, tuple[str, str, str, str]] = {
    "config": (
        'CFG = {{"gain": 2.0}}\nCFG["bias"] = [1, 2]',
        "self.gain = CFG['gain']",
        "{x} = {x} * self.gain + CFG['bias'][1]",
        "",
    ),
    "appended": (
        "SIZES = []\nfor n in (1, 2):\n    SIZES.append(n * 0.5)",
        "",
        "{x} = {x} * SIZES[-1]",
        "",
    ),
    "dataclass": (
        (
            "@dataclass\nclass Config:\n    gain: float = 0.5\n"
            "    names: list[str] = field(default_factory=list)"
        ),
        "self.config = Config()",
        "{x} = {x} * self.config.gain",
        "",
    ),
    "enum": (
        "class Kind(Enum):\n    FAST = 1\n    SLOW = 2",
        "self.kind = Kind.SLOW",
        "{x} = {x} * (2 if self.kind is Kind.SLOW else 1)",
        "",
    ),
    "script": (
        "@torch.jit.script\ndef swish(t):\n    return t * torch.sigmoid(t)",
        "",
        "{x} = swish({x})",
        "",
    ),
    "star": ("from math import *", "", "{x} = {x} * sqrt(2) * pi", ""),
    "type_checking": (
        "if TYPE_CHECKING:\n    from pathlib import Path as Somewhere",
        "",
        "",
        "kind: 'Somewhere' = None",
    ),
    "try_import": (
        "try:\n    import no_such_module\nexcept ImportError:\n    no_such_module = None",
        "",
        "{x} = {x} + (no_such_module is None)",
        "",
    ),
    "file": (
        "HERE = os.path.basename(os.path.dirname(os.path.abspath(__file__)))",
        "",
        "{x} = {x} * (1 + bool(HERE))",
        "",
    ),
    "helper": (
        "def relu(t): return t.clamp(min=0)\n\n\ndef _launch(t): return t * 2",
        "",
        "{x} = _launch(relu({x}))",
        "",
    ),
    "helper_class": (
        (
            "class Block(nn.Module):\n    def __init__(self, k=3):\n"
            "        super(Block, self).__init__()\n"
            "        self.k = k\n    def forward(self, t): return t * self.k"
        ),
        "self.block = Block()",
        "{x} = self.block({x})",
        "",
    ),
    "nested_class": (
        "",
        "self.inner = self.Inner()",
        "{x} = self.inner({x})",
        "class Inner(nn.Module):\n    def forward(self, t): return t.relu() * 2\n",
    ),
    "class_state": (
        "",
        "Model.made = True",
        "{x} = {x} * (2 if Model.made else 1)",
        "made = False\nTABLE = (1, 2)",
    ),
    "static": (
        "",
        "",
        "{x} = self.twice({x}) + self.one",
        "@staticmethod\ndef twice(t): return t * 2\n@property\ndef one(self): return 1\n",
    ),
    "docstring": (
        r"TEXT = 'a\\\\b \N{{DEGREE SIGN}}'",
        "",
        "",
        'r"""The \\alpha of \\u, a \'quote\' and a """  # \\N\n',
    ),
    "string": (
        'TEXT = """\nclass Model:\n    def forward(self): pass\n"""',
        "",
        '"""\ntext at column 0\n"""\n{x} = {x} + len(TEXT) * 0.01',
        "",
    ),
    "global": ("calls = 0", "global calls; calls += 1", "{x} = {x} * 1.5", ""),
    "main": ("if __name__ == '__main__':\n    raise SystemExit", "", "", ""),
    "device": (
        "DEVICE = 'cuda' if torch.cuda.is_available() else 'cpu'",
        "self.to(DEVICE)",
        "{x} = {x}.to(DEVICE)",
        "",
    ),
    "numpy": (
        "import numpy as np",
        "self.k = np.float32(1.5); self.register_buffer('n', torch.from_numpy(np.ones(12, 'f4')))",
        "{x} = {x} * float(self.k) + self.n",
        "",
    ),
}
HEADS = (
    *("class Model(nn.Module):", "@marked\nclass Model(nn.Module):", "class Model(Base):"),
    *("class Model ( nn.Module ) :", "class Model(nn.Module, Mixin):", "class Net(nn.Module):"),
)
# Parameters of __init__, their arguments, and what forward does with what __init__ kept.
ARGUMENTS = (
    ("", "", ""),
    ("gain", "2.5", "{x} = {x} * self.kept"),
    ("size=12, *, k=2", "12", "{x} = {x} * self.kept"),
    ("function", "F.relu", "{x} = self.kept({x})"),
    ("kind", "torch.float64", "{x} = {x}.to(self.kept).float()"),
    ("shape", "torch.Size([3, 4])", "{x} = {x}.unflatten(-1, self.kept).flatten(-2)"),
    ("table", "{'a': [1, 2.5], 3: None}", "{x} = {x} * self.kept['a'][1]"),
    ("layer", "nn.GELU", "{x} = self.kept()({x})"),
    ("start", "torch.arange(12.0)", "{x} = {x} + self.kept"),
    ("*sizes", "1, 2", "{x} = {x} * self.kept[1]"),
    ("lambda_", "float('inf')", "{x} = {x}.clamp(max=self.kept)"),
)
INDENTS = ("    ", "  ", "        ", "\t", "   ")
MANNERS = ("crlf", "bom", "form_feed", "column_0", "one_line", "no_end", "lambda", "annotations")
TOP = """import os
from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

import torch
import torch.nn as nn
import torch.nn.functional as F

Out = namedtuple("Out", ["first", "second"])
"""
BASES = {
    "@marked": "def marked(c):\n    c.mark = 1\n    return c\n",
    "Base": "class Base(nn.Module):\n    pass\n",
    "Mixin": "class Mixin:\n    def more(self): return 1\n",
}


class OddModel(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a reference file; the defaults are the plainest."""

    steps: tuple[str, ...]
    extra: str = "nothing"
    form: str = FORMS[0]
    layouts: tuple[str, str] = (LAYOUTS[0], LAYOUTS[0])
    names: tuple[str, str, str, str] = ("x", "y", "e", "w")
    frames: tuple[str, ...] = ()
    head: str = HEADS[0]
    argument: int = 0
    indent: str = INDENTS[0]
    manners: tuple[str, ...] = ()
    rank: int = 3

    def text(self) -> str:
        """Return the file's content."""
        x, y, e, w = self.names
        sizes = {2: "5, 12", 3: "5, 7, 12", 4: "5, 2, 3, 12"}[self.rank]
        batch, rest = sizes.split(", ", 1)
        spelled = {"x": x, "y": y, "e": e, "w": f"self.{w}"}
        value, use = EXTRAS[self.extra]
        parameters, arguments, kept = ARGUMENTS[self.argument]
        frames = [FRAMES[name] for name in self.frames]
        first = [line for _, _, line, _ in frames] + [use, kept]
        body, inits, results = _parted([*first, *(STEPS[name] for name in self.steps)], spelled)
        held = parameters.partition("=")[0].lstrip("*").partition(",")[0]
        if held:
            inits.insert(0, f"self.kept = {held}")
        inits = [
            f"self.{w} = nn.Parameter(torch.rand(12))",
            *(f[1] for f in frames if f[1]),
            *inits,
        ]
        result = self.form.format(r=", ".join(results) or y, **spelled)
        if self.form.startswith(("Out", "OrderedDict")):
            result = self.form.format(r=f"({', '.join(results) or y})", **spelled)
        names = ", ".join([x, y, e] if value else [x, y])
        start = f"super().__init__(); {'; '.join(inits)}"
        constructor = [f"def __init__(self{', ' * bool(parameters)}{parameters}):"]
        if "one_line" in self.manners:
            constructor[0] += f" {start}"
        else:
            constructor += ["    " + line for line in start.split("; ")]
        column = ["# at column 0"] * ("column_0" in self.manners)
        inside = [
            *(line for frame in frames for line in frame[3].splitlines()),
            *constructor,
            *column,
            f"def forward(self, {names}):",
            *("    " + line for part in body for line in part.split("\n")),
            f"    return {result}",
        ]
        above = (
            "\n\n\n".join([*(f[0] for f in frames if f[0])]).replace("{{", "{").replace("}}", "}")
        )
        base = "\n\n".join(text for name, text in BASES.items() if name in self.head)
        alias = "" if "class Model" in self.head else "\n\nModel = Net\n"
        memory = "torch.channels_last" if self.rank == 4 else "torch.contiguous_format"
        places = {"s": sizes, "b": batch, "r": rest, "m": memory}
        turned = sizes.split(", ")
        places["t"] = ", ".join([*turned[:-2], turned[-1], turned[-2]])
        makes = [f"{n} = {p.format(**places)}" for n, p in zip("xy", self.layouts, strict=True)]
        given = f"[x, y, {value.replace('{s}', sizes)}]" if value else "[x, y]"
        feed = "\f\n" if "form_feed" in self.manners else ""
        lines = [
            "from __future__ import annotations\n" * ("annotations" in self.manners) + TOP,
            f"{base}\n{above}\n\n{feed}",
            self.head,
            *(line if line.startswith("# at") or not line else "    " + line for line in inside),
            alias,
            "\ndef get_inputs():",
            *("    " + line for line in makes),
            f"    return {given}",
            "",
            "get_init_inputs = lambda: [{}]"
            if "lambda" in self.manners
            else "def get_init_inputs():\n    return [{}]",
        ]
        lines[-1] = lines[-1].replace("{}", arguments)
        return self._in_its_manner("\n".join(lines) + "\n")

    def _in_its_manner(self, text: str) -> str:
        def indented(found: re.Match[str]) -> str:
            return self.indent * (len(found[0]) // 4)

        text = re.sub(r"^(?:    )+", indented, text, flags=re.MULTILINE)
        if "no_end" in self.manners:
            text = text.rstrip("\n")
        if "crlf" in self.manners:
            text = text.replace("\n", "\r\n")
        return "\ufeff" * ("bom" in self.manners) + text

    def simpler(self) -> Iterator["OddModel"]:
        """Yield models with a part less."""
        for name in ("steps", "frames", "manners"):
            parts = getattr(self, name)
            for n in range(len(parts)):
                yield msgspec.structs.replace(self, **{name: parts[:n] + parts[n + 1 :]})
        for name, default in msgspec.structs.asdict(OddModel(steps=())).items():
            if name not in ("steps", "frames", "manners") and getattr(self, name) != default:
                yield msgspec.structs.replace(self, **{name: default})


def _parted(
    parts: Sequence[str], spelled: Mapping[str, str]
) -> tuple[list[str], list[str], list[str]]:
    """Return statements of forward and of __init__, and expressions of results."""
    body, inits, results = [], [], []
    for part in filter(None, parts):
        shown, _, init = part.format(**spelled).partition("; init ")
        shown, _, result = shown.partition("; result ")
        body += shown.split("; ") if "\n" not in shown else [shown]
        inits += init.split("; ") if init else []
        results += [result] if result else []
    return body, inits, results


# --- rendered, and compared with eager ------------------------------------------------------------

# A refusal that blames the file, which runs, or what no file can help.
_UNTRUE = re.compile(r"its code raises|sent no graph|the process that traces it|bug in kernelgen")


def rendered(file: Path, backend: Backend = "cpp") -> tuple[str, str]:
    """Return a file's solution and "", or nothing and why it is refused.

    Raises:
        AssertionError: the refusal is more than a line, or untrue.
    """
    try:
        return render(load_problem(file), backend), ""
    except UserError as error:
        why = str(error)
        assert "\n" not in why, why
        assert not _UNTRUE.search(why), why
        return "", why


def eager_fails(reference: Path) -> str:
    """Return what eager raises on a file's own inputs; "" if nothing."""
    import torch

    try:
        with torch.no_grad():
            module = _module(reference)
            module.Model(*module.get_init_inputs())(*module.get_inputs())
    except Exception as error:  # noqa: BLE001 - such a file is left out
        return f"{type(error).__name__}: {error}"
    return ""


def difference(reference: Path, solution: Path, builds: Path) -> str:
    """Return how a solution differs from its reference, in forward or in state; "" if it does not.

    Inputs are those of the file, the same with other strides, and with other first sizes; the
    solution may refuse what it is not written for, by a ValueError.
    """
    import torch

    def compiled(*, cpp_sources: str, extra_cflags: Sequence[str], **_: object) -> str:
        text = cpp_sources + " ".join(extra_cflags)
        path = builds / f"{hashlib.sha256(text.encode()).hexdigest()}.so"
        if not path.exists():
            command = ["c++", "-x", "c++", "-", "-std=c++17", "-shared", "-fPIC", "-o", str(path)]
            subprocess.run(
                [*command, *extra_cflags],
                input=cpp_sources,
                text=True,
                check=True,
                capture_output=True,
            )
        return str(path)

    with mock.patch("torch.utils.cpp_extension.load_inline", compiled), torch.no_grad():
        before, after = _module(reference), _module(solution)
        torch.manual_seed(0)
        eager = before.Model(*before.get_init_inputs())
        torch.manual_seed(0)
        ours = after.ModelNew(*after.get_init_inputs())
        ours.load_state_dict(_state(eager, ours))
        torch.manual_seed(1)
        inputs = before.get_inputs()
        for name, given in _ways(inputs):
            told, made = _seeded(eager, given), _seeded(ours, given)
            if isinstance(told[0], Exception) and name:
                continue
            if isinstance(made[0], ValueError) and name:
                ours.load_state_dict(_state(eager, ours))  # which eager has gone on with
                continue
            if found := _differs("output", told[0], made[0]) or _differs("input", told[1], made[1]):
                return f"{found}{name}"
            found = _differs("state", _state(eager, ours), dict(ours.state_dict()))
            if found:
                return f"{found}{name}"
    return ""


def _state(model: Any, ours: Any) -> dict[str, Any]:
    """Return a Model's state by the names of ours, whose private ones may have its class in them.

    They have not where it is a subclass of Model.
    """
    state, known = model.state_dict(), ours.state_dict()
    renamed = {name: name.replace("_Model__", "_ModelNew__") for name in state}
    return {name if name in known else renamed[name]: t for name, t in state.items()}


def _module(file: Path) -> ModuleType:
    return import_file(f"odd_{file.stem}", file)


def _ways(inputs: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    def each(change: Any, value: Any) -> Any:
        import torch

        if isinstance(value, torch.Tensor):
            return change(value) if value.dim() > 1 else value
        if isinstance(value, dict):
            return {key: each(change, item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(each(change, item) for item in value)
        return value

    yield "", inputs
    yield ", in a second call", inputs
    import torch

    changes = {
        ", with other strides": lambda t: t.transpose(-1, -2).contiguous().transpose(-1, -2),
        ", with steps": lambda t: torch.stack([t, t + t], -1)[..., 0],
        ", with an offset": lambda t: torch.cat([t[:1], t])[1:],
        ", with twice the first size": lambda t: torch.cat([t, t]),
        ", with a first size of 1": lambda t: t[:1],
    }
    for name, change in changes.items():
        yield name, each(change, inputs)


def _seeded(model: Any, inputs: list[Any]) -> tuple[Any, Any]:
    """Return what a call of a model returns or raises, and its inputs after it."""
    import torch

    given = copy.deepcopy(inputs)
    torch.manual_seed(5)
    random.seed(5)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(5)
    try:
        return model(*given), given
    except Exception as error:  # noqa: BLE001 - what eager raises, the solution may
        return error, given


def _kind(value: Any) -> str:
    """Return the name of a value's type; of a named tuple or an ordered dict what that is."""
    found = (kind.__name__ for kind in (tuple, dict) if isinstance(value, kind))
    return next(found, type(value).__name__)


def _values_differ(where: str, told: Any, made: Any) -> str:
    import torch

    expected, got = ((tuple(t.shape), t.dtype) for t in (told, made))
    if expected != got:
        return f"{where}: expected {expected}, got {got}"
    same = made == told
    if told.is_floating_point() or told.is_complex():
        finite = told[told.isfinite()].abs().double()
        scale = min(1.0, float(finite.square().mean().sqrt())) if finite.numel() else 1.0
        scale = max(scale, 1e-2)  # a sum that cancels may be all that there is
        close = 4e-3 if told.dtype in (torch.half, torch.bfloat16) else 2e-5
        same |= torch.isclose(made, told, close, close * scale, equal_nan=True)
    wrong = int((~same).sum())
    place = tuple((~same).nonzero()[0].tolist()) if wrong else ()
    words = f"{where}: {wrong} of {told.numel()} values differ"
    return f"{words}: {place} is {made[place]}, not {told[place]}" if wrong else ""


def _differs(where: str, told: Any, made: Any) -> str:
    """Return how what was made differs from what was told; "" if it does not."""
    import torch

    kinds = _kind(told), _kind(made)
    if isinstance(made, Exception) or kinds[0] != kinds[1]:
        words = f"{kinds[1]}: {made}" if isinstance(made, Exception) else kinds[1]
        return f"{where}: expected {kinds[0]}, got {words}"
    if isinstance(told, dict):
        if list(told) != list(made):
            return f"{where}: expected keys {list(told)}, got {list(made)}"
        found = (_differs(f"{where}[{k!r}]", told[k], made[k]) for k in told)
    elif isinstance(told, list | tuple):
        if len(told) != len(made):
            return f"{where}: expected {len(told)} parts, got {len(made)}"
        found = (
            _differs(f"{where}[{n}]", *two) for n, two in enumerate(zip(told, made, strict=True))
        )
    elif isinstance(told, torch.Tensor):
        return _values_differ(where, told, made)
    else:
        return "" if told == made else f"{where}: expected {told}, got {made}"
    return next(filter(None, found), "")
