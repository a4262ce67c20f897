"""Forward and backward as one call, of a reference and of a candidate alike."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from kernelgen.grading.wire.values import map_tensors

_OWN_FORWARD = "forward of this instance"

Gradient = Callable[[torch.Tensor], torch.Tensor]
"""The gradient of an input or a parameter; 0 where nothing depends on it."""
NamedGradients = Callable[[torch.nn.Module, Gradient], dict[str, torch.Tensor]]


def with_gradients(model: torch.nn.Module, of_parameters: NamedGradients) -> None:
    """Have a model take upstream gradients as its last argument, and return gradients as well.

    The last argument has a tensor for each output that is a float. The result is `outputs`, and the
    gradients `of_inputs` that are floats and `of_parameters`, by name. The model stays the same
    object, with the same names.

    Raises:
        TypeError: instances of the model's class cannot become others, as TorchScript's.
    """
    usual: Any = type(model)
    if "forward" in model.__dict__:
        # It would be called in place of the class's.
        model.__dict__[_OWN_FORWARD] = model.__dict__.pop("forward")

    def forward(self: torch.nn.Module, *given: Any) -> dict[str, Any]:
        *arguments, upstream = given
        leaves: list[torch.Tensor] = []

        def leaf(tensor: torch.Tensor) -> torch.Tensor:
            if not tensor.is_floating_point():
                return tensor
            leaves.append(tensor.detach().requires_grad_())
            return leaves[-1]

        with torch.enable_grad():
            own = self.__dict__.get(_OWN_FORWARD) or functools.partial(usual.forward, self)
            outputs = own(*map_tensors(arguments, leaf))
        floats: list[torch.Tensor] = []

        def end(tensor: torch.Tensor) -> torch.Tensor:
            if tensor.is_floating_point():
                floats.append(tensor)
            return tensor.detach()

        detached = map_tensors(outputs, end)
        # How many there are is compared later.
        ends = [(out, up) for out, up in zip(floats, upstream, strict=False) if out.requires_grad]
        if not ends:
            raise RuntimeError(
                "the outputs record no gradient; compute them by operators that have a backward, "
                "or in a torch.autograd.Function with one"
            )
        asked = [*leaves, *(own for own in self.parameters() if own.requires_grad)]
        outs, ups = zip(*ends, strict=True)
        gradients = torch.autograd.grad(outs, asked, ups, allow_unused=True)
        by_id = {id(one): own for one, own in zip(asked, gradients, strict=True)}

        def gradient(tensor: torch.Tensor) -> torch.Tensor:
            own = by_id.get(id(tensor))
            return torch.zeros_like(tensor) if own is None else own

        return {
            "outputs": detached,
            "of_inputs": [gradient(one) for one in leaves],
            "of_parameters": of_parameters(self, gradient),
        }

    model.__class__ = type(usual.__name__, (usual,), {"forward": forward})


def of_own_parameters(model: torch.nn.Module, gradient: Gradient) -> dict[str, torch.Tensor]:
    """Return the gradients of a model's parameters, by its names."""
    return {name: gradient(p) for name, p in model.named_parameters() if p.requires_grad}
