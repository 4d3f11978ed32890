"""What only the model's own class has: Output, State, and the conversion between State and nested tuples."""

from __future__ import annotations

from seqspec.backends.source import names
from seqspec.diagnostics import SeqspecError
from seqspec.graph.signature import Signature

_STATE = '''class State(dict):
    """What one call leaves for the next: tensors by name, batch first. Pass it back as `state`."""

    def detach(self) -> "State":
        """Cut off from the gradient, for truncated backpropagation through time."""
        return State({name: x.detach() for name, x in self.items()})

    def reorder(self, rows: Tensor) -> "State":
        """The given rows of the batch, as a beam search picks them."""
        return State({name: x.index_select(0, rows) for name, x in self.items()})


# lets torch.export and torch.func see the tensors
torch.utils._pytree.register_pytree_node(
    State,
    lambda state: (list(state.values()), list(state)),
    lambda tensors, keys: State(zip(keys, tensors, strict=True)),
    serialized_type_name=f"{__name__}.State",
)'''

_NEST = '''def nest(names, state):
    """The tensors of `state`, nested as `names` are; None for a name it does not have."""
    return state.get(names) if isinstance(names, str) else [nest(inner, state) for inner in names]'''

_PAST = '''def past_from(state):
    """The tensors of `state`, nested as STATE is; None where there is no state yet."""
    if state is None:
        return None
    unknown = sorted(state.keys() - flatten(STATE, STATE).keys())
    if unknown:
        raise KeyError(f"the model has no state called {', '.join(unknown)}")
    return nest(STATE, state)'''

_FLATTEN = '''def flatten(names, present):
    """The way back: {name: tensor}, without the tensors that are None."""
    if isinstance(names, str):
        return {} if present is None else {names: present}
    return {k: x for inner, part in zip(names, present, strict=True) for k, x in flatten(inner, part).items()}'''

STATE_TOOLS = (_NEST, _FLATTEN, _PAST, _STATE)
"""State, and the functions that convert between it and nested tuples."""


class Root:
    """The public interface of the model's class."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        self.public = {s.path: s.past for s in signature.states}
        for port in signature.outputs:
            if not names.plain(port.python) or port.python.startswith("_") or port.python == "state":
                raise SeqspecError(
                    "SEQ304", f"an output cannot be called {port.name!r} in PyTorch", "choose another name"
                )

    def output(self) -> str:
        """The text of the class that the model returns."""
        fields = [f"    {port.python}: Tensor{' | None' * port.optional}" for port in self.signature.outputs]
        fields += ["    state: State"] if self.signature.states else []
        return "\n".join(["class Output(NamedTuple):", '    """What the model returns."""', "", *fields])

    def returns(self, results: list[str], present: str) -> str:
        """`Output(logits, State(flatten(STATE, present)))`"""
        return f"Output({', '.join([*results, *([f'State(flatten(STATE, {present}))'] if present else [])])})"
