"""A linear layer of a plan as a product of the file's own."""

from collections.abc import Mapping

from kernelgen.planning.graph import Reference, TensorType, references
from kernelgen.planning.plan import Library
from kernelgen.planning.rewrites.builder import strides_of
from kernelgen.rendering.choose import Architecture, choose_product, product_schedule
from kernelgen.rendering.context import LINEAR_PRODUCT, ProductInterface
from kernelgen.rendering.environment import cpp_environment, python_environment
from kernelgen.rendering.stages.stage_text import StageText


def render_product(
    stage: Library,
    types: Mapping[str, TensorType],
    arch: Architecture,
    known: dict[str, str],
) -> StageText | None:
    """Return a linear layer that is `own` as text; None where torch multiplies as fast.

    Of `types` it reads the weight's. `known` are kernels that stand already, and what their
    functions are called; this one is added.
    """
    given = [stage.arguments[name] for name in ("input", "weight", "bias")]
    read = ["{" + one.name + "}" if isinstance(one, Reference) else "None" for one in given]
    (weight,) = references(stage.arguments["weight"])
    (out,) = stage.types
    assert out is not None
    of_weight = types[weight]
    shape = (*out.shape[:-1], of_weight.shape[1])
    of_x = TensorType(shape=shape, strides=strides_of(shape), dtype="float32")
    chosen = choose_product(of_x, of_weight, arch)
    if chosen.kernel != "hopper":
        return None
    template = cpp_environment().get_template("cuda/product/product.cu.jinja")
    schedule, interface = product_schedule(chosen, arch), ProductInterface(idea=LINEAR_PRODUCT)
    kernel = template.render(arch=arch, fast=chosen, schedule=schedule, interface=interface)
    if (name := known.get(kernel)) is not None:
        return StageText(idea="", call=f"_{name}({', '.join(read)})")
    name = known[kernel] = f"product_{len(known) + 1}" if known else "product"
    if name != "product":
        kernel = kernel.replace(" product_", f" {name}_")
        kernel = kernel.replace("namespace product", f"namespace {name}")
    return StageText(
        kind="product",
        idea="linear: tensor cores multiply halves of both operands' values, as accurately as fp32",
        kernel=kernel,
        function=python_environment().get_template("plan/product.py.jinja").render(name=name),
        call=f"_{name}({', '.join(read)})",
    )
