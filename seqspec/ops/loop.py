"""A loop that runs a region once per time step and passes values on to the next step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from seqspec.graph.dims import Shape, Size, evaluate, show
from seqspec.graph.interpret import interpret
from seqspec.graph.ir import Call, Param, Region, State, Value
from seqspec.ops.base import Array, Expr, Helper, OnnxWriter, Op, ShapeError, TorchWriter, Type, Weights, primitive
from seqspec.ops.gradients import Gradients, Takes

STACK_STEPS = Helper(
    "stack_steps",
    '''
def stack_steps(steps, x, *shape):
    """steps [B, *shape], one for each column of x[B, T, ...] -> [B, T, *shape], T = 0 included"""
    return torch.stack(steps, 1) if steps else x.new_zeros(x.shape[0], 0, *shape)
''',
)


@primitive
class Loop(Op):
    """initial…?, xs[B,T,·]…, invariants… -> carried after the last step…, ys[B,T,·]…

    `body` takes the `carried` values, then one step [B,·] of each of the `scanned` inputs, then the invariants. It
    returns the new carried values, then one step of each y. If `stateful`, the carried values are states with the
    names of the body's inputs. An initial value of None is zeros; a past wins over both. Parameters are the body's.

    Both writers receive `args`: the initial values (`carried` of them, None for zeros), the xs (`scanned` of them) and
    the invariants. For `TorchWriter.loop` the pasts follow (`carried` of them, None if the graph carries no state).
    `OnnxWriter.scan` gets pasts or zeros in place of the initial values, so that only an invariant (an absent mask) can
    be None.

    **TorchWriter.loop** declares the body's class as the node's module (`self.step`; its state dict prefix is the
    node's name), first binds every x and invariant that is not a plain name to a variable, and writes

        h = <initial> if past_h is None else past_h         # the initial expression is evaluated only then
        ys = []
        for t in range(x.shape[1]):
            h, y = self.step(h, x[:, t], keys, memory, mask)
            ys.append(y)
        y = stack_steps(ys, x, 48)                          # t.use(STACK_STEPS); [B, 0, 48] where T = 0

    An initial value of None becomes `x.new_zeros(<sizes of the body's input>)`, with x any float x or invariant, and
    without a past there is no conditional. If the body has one output, the left side is a single name. Later statements
    may reuse the carried variables, so a y that is itself a carried value is appended right after the step. The result
    is the text of the tuple of carried names, then y names.

    **OnnxWriter.scan** writes `Scan` with num_scan_inputs = `scanned` and all scan_input_axes and scan_output_axes 1.
    The body's parameters and the invariants are captured from the outer scope. It returns the final values, then the
    ys. The subgraph's inputs and outputs declare the body's shapes.
    """

    body: Region
    carried: int
    scanned: int = 1
    stateful: bool = True

    def infer(self, *inputs: Value | None) -> tuple[Type, ...]:
        if len(inputs) != len(self.body.inputs):
            raise ShapeError(f"{self.body.name} steps over {len(self.body.inputs)} inputs, not {len(inputs)}")
        if self.body.states:
            raise ShapeError(f"{self.body.name} carries a state of its own, which a loop cannot")
        first = inputs[self.carried]
        if first is None or len(first.shape) < 2:
            raise ShapeError(f"{self.body.name} needs {self.body.inputs[self.carried].name} at every step")
        batch, time = first.shape[:2]
        for k, (want, got) in enumerate(zip(self.body.inputs, inputs, strict=True)):
            scanned = self.carried <= k < self.carried + self.scanned
            self._check_input(want, got, (batch, time, *want.shape[1:]) if scanned else want.shape, k < self.carried)
        self._check_carried(inputs)
        finals = [Type(v.shape, v.dtype) for v in self.body.outputs[: self.carried]]
        ys = [Type((batch, time, *v.shape[1:]), v.dtype) for v in self.body.outputs[self.carried :]]
        return (*finals, *ys)

    def _check_input(self, want: Value, got: Value | None, shape: Shape, initial: bool) -> None:
        if got is None:
            if not want.optional and not initial:
                raise ShapeError(f"{self.body.name} needs {want.name}")
        elif (got.shape, got.dtype) != (shape, want.dtype):
            raise ShapeError(
                f"{self.body.name} takes {want.name} {want.dtype}{show(shape)}, not {got.dtype}{show(got.shape)}"
            )

    def _check_carried(self, inputs: Sequence[Value | None]) -> None:
        for before, after, start in zip(self.body.inputs[: self.carried], self.body.outputs, inputs, strict=False):
            if (before.shape, before.dtype) != (after.shape, after.dtype):
                raise ShapeError(f"{before.name} {show(before.shape)} comes out of a step as {show(after.shape)}")
            for size in before.shape if start is None else ():
                if not isinstance(size, int):
                    self._measure(size, inputs[self.carried :])

    def params(self) -> tuple[Param, ...]:
        return self.body.params

    def states(self, *inputs: Value | None) -> tuple[State, ...]:
        carried = self.body.inputs[: self.carried] if self.stateful else ()
        return tuple(State(v.name, v.shape, k, v.dtype) for k, v in enumerate(carried))

    def bodies(self) -> Iterator[Region]:
        yield self.body

    def flops(self, *inputs: Value | None) -> Size:
        """Those of the body, once per step."""
        sizes = self._sizes([None if v is None else v.shape for v in inputs])
        first = inputs[self.carried]
        return (first.shape[1] if first else 0) * _region_flops(self.body, sizes)

    def backward(self, takes: Sequence[bool], *inputs: Value | None) -> Size:
        """The body's of every step; what the first one starts from may take no gradient where the others' does."""
        sizes = self._sizes([None if v is None else v.shape for v in inputs])
        first, gradients = inputs[self.carried], Gradients()
        steps = first.shape[1] if first else 0
        start = _region_backward(self.body, tuple(takes), gradients, sizes)
        later = _region_backward(self.body, self._later(takes, gradients), gradients, sizes)
        return start + (steps - 1) * later if steps else 0

    def keeps(self, takes: Sequence[bool], inputs: Sequence[Any], outputs: Sequence[Value]) -> Iterator[Value | None]:
        """What the body keeps and what it is handed, at every step; of the rest, what it reads."""
        gradients, time = Gradients(), inputs[self.carried].shape[1]
        later = self._later(takes, gradients)
        for number in gradients.kept(self.body, later).inputs:
            value = self.body.inputs[number]
            handed = number < self.carried
            yield replace(value, name="", shape=(time, *value.shape)) if handed else inputs[number]
        for value in gradients.all_kept(self.body, later):
            yield replace(value, name="", shape=(time, *value.shape))

    def reference(self, np: Any, weights: Weights, *inputs: Array | None) -> tuple[Array, ...]:
        initial, xs, invariants, pasts = self._parts(inputs)
        sizes = self._sizes([None if a is None else a.shape for a in (*initial, *xs, *invariants)])

        def zeros(value: Value, *time: int) -> Array:
            batch, *rest = (_number(s, sizes) for s in value.shape)
            return np.zeros((batch, *time, *rest), xs[0].dtype)

        state = [
            past if past is not None else start if start is not None else zeros(value)
            for past, start, value in zip(pasts, initial, self.body.inputs, strict=False)
        ]
        time = xs[0].shape[1]
        ys = [zeros(v, time) for v in self.body.outputs[self.carried :]]
        for t in range(time):
            outputs, _ = interpret(self.body, np, weights, (*state, *(x[:, t] for x in xs), *invariants))
            state = list(outputs[: self.carried])
            for y, step in zip(ys, outputs[self.carried :], strict=True):
                y[:, t] = step
        return (*state, *ys)

    def torch(self, t: TorchWriter, *inputs: Expr | None) -> Expr:
        initial, xs, invariants, pasts = self._parts(inputs)
        return t.loop(self.body, self.carried, self.scanned, (*initial, *xs, *invariants, *pasts))

    def onnx(self, o: OnnxWriter, *inputs: Any) -> tuple[Any, ...]:
        initial, xs, invariants, pasts = self._parts(inputs)
        starts = [
            past if past is not None else start if start is not None else self._onnx_zeros(o, value, (*xs, *invariants))
            for past, start, value in zip(pasts, initial, self.body.inputs, strict=False)
        ]
        # onnxruntime's Scan needs at least one step: for T = 0 a step of zeros is added, and its results are dropped
        steps = [_some_step(o, x, value.dtype) for x, value in zip(xs, self.body.inputs[self.carried :], strict=False)]
        outputs = o.scan(self.body, self.carried, self.scanned, (*starts, *steps, *invariants))
        time = o.size(xs[0], 1)
        stepped = o.Greater(time, o.ints(0))
        finals = [o.Where(stepped, final, start) for final, start in zip(outputs, starts, strict=False)]
        return (*finals, *(o.Slice(y, o.ints(0), time, o.ints(1)) for y in outputs[self.carried :]))

    def _later(self, takes: Sequence[bool], gradients: Gradients) -> tuple[bool, ...]:
        """What takes a gradient from the second step on."""
        flow = gradients.flow(self.body, tuple(takes))
        return (*(flow[v.name] for v in self.body.outputs[: self.carried]), *takes[self.carried :])

    def _onnx_zeros(self, o: OnnxWriter, value: Value, given: Sequence[Any]) -> Any:
        sizes = [o.ints(s) if isinstance(s, int) else o.size(*self._measure(s, given)) for s in value.shape]
        return o.Expand(o.scalar(0.0), o.Concat(*sizes, axis=0))

    def _measure(self, size: Size, given: Sequence[Any]) -> tuple[Any, int]:
        """An x or invariant that has this size, and on which axis."""
        for k, (value, got) in enumerate(zip(self.body.inputs[self.carried :], given, strict=True)):
            if got is not None and size in value.shape:
                axis = value.shape.index(size)
                return got, axis + 1 if axis and k < self.scanned else axis
        raise ShapeError(f"{self.body.name} starts from zeros of size {size}, which nothing it is given has")

    def _parts(self, inputs: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any], Sequence[Any]]:
        """Initial values, xs, invariants, and pasts (all None if it carries no state)."""
        split, end = self.carried + self.scanned, len(self.body.inputs)
        pasts = inputs[end:] if self.stateful else [None] * self.carried
        return inputs[: self.carried], inputs[self.carried : split], inputs[split:end], pasts

    def _sizes(self, shapes: Sequence[Shape | None]) -> dict[str, int]:
        """The numbers for the sizes that the body names, read off the shapes of its inputs."""
        sizes: dict[str, int] = {}
        for k, (value, shape) in enumerate(zip(self.body.inputs, shapes, strict=True)):
            if shape is not None:
                scanned = self.carried <= k < self.carried + self.scanned
                known = (shape[0], *shape[2:]) if scanned else shape
                sizes |= {str(s): n for s, n in zip(value.shape, known, strict=True) if isinstance(n, int)}
        return sizes


def _some_step(o: OnnxWriter, x: Any, dtype: str) -> Any:
    """x[B,T,·], or a step of zeros if T = 0."""
    missing = o.Max(o.Sub(o.ints(1), o.size(x, 1)), o.ints(0))
    shape = o.Concat(o.size(x, 0), missing, o.Shape(x, start=2), axis=0)
    return o.Concat(x, o.Expand(o.scalar(0, dtype), shape), axis=1)


def _region_flops(region: Region, sizes: Mapping[str, int]) -> Size:
    total: Size = 0
    for item in region.items:
        if isinstance(item, Call):
            total = total + _region_flops(item.region, sizes)
        else:
            total = total + item.op.flops(*_known(item.inputs, sizes))
    return total


def _region_backward(region: Region, takes: Takes, gradients: Gradients, sizes: Mapping[str, int]) -> Size:
    total: Size = 0
    flow = gradients.flow(region, takes)
    for item in region.items:
        of = gradients.of(item, flow)
        if isinstance(item, Call):
            total = total + _region_backward(item.region, of, gradients, sizes)
        else:
            total = total + item.op.backward(of, *_known(item.inputs, sizes))
    return total


def _known(values: Sequence[Value | None], sizes: Mapping[str, int]) -> list[Value | None]:
    return [v and replace(v, shape=tuple(_number(s, sizes) for s in v.shape)) for v in values]


def _number(size: Size, sizes: Mapping[str, int]) -> int:
    """The number for a size: one known as a whole, such as ceil(time / 2), or one computed from known names."""
    found = size if isinstance(size, int) else sizes.get(str(size))
    return evaluate(size, sizes) if found is None else found
