"""Model -> Graph: the stacks in order, then the head."""

from __future__ import annotations

from dataclasses import replace

from seqspec.components.assembly import Built, Plan, build_stack
from seqspec.components.base import camel
from seqspec.components.heads import Reading
from seqspec.components.inputs import Tables
from seqspec.components.stack import Facts, Stack
from seqspec.components.states import Memory
from seqspec.graph.builder import Builder
from seqspec.graph.ir import Graph, Value
from seqspec.spec.model import Model


def build(model: Model) -> Graph:
    """The graph of a checked model. ShapeError would mean that a check is missing."""
    return graph_of(model.resolved())


def graph_of(model: Model) -> Graph:
    """The graph of a model whose defaults are filled in."""
    root = Builder(class_name(model.name))
    facts, stateful = model.facts(), model.stateful
    built: dict[str, Built] = {}
    for name, stack in model.stacks.items():
        memories = {n: _memory(built[n], facts[n], model.stacks[n]) for n in sorted(stack.reads())}
        built[name] = build_stack(root, stack, _plan(model, name, stack, stateful), memories, _tables(model, stack))
    # without a state there is only one call, so no input belongs to the first call alone
    once = {v.name for v in root.inputs if not v.name.startswith("decoder_")} if len(model.stacks) > 1 else set()
    last = built[model.last]
    attentions = [replace(weights, hint=f"attentions.{name}") for name, weights in last.weights.items()]
    reading = _reading(model, last, stateful)
    outputs = _outputs(root, model, reading)
    region = root.done(*outputs, *attentions)
    losses = [
        head.loss(root, reading, output, shift=facts[model.last].causal, prefix=name and f"{name}_")
        for (name, head), output in zip(model.heads.items(), outputs, strict=False)
    ]
    found = [loss for loss in losses if loss]
    training = root.done(*outputs, *attentions, *found) if found else None
    return Graph(region, frozenset(once if stateful else ()), training)


def class_name(name: str) -> str:
    """`llama-3.2-1b` -> `Llama321b`"""
    return camel(name.replace("-", "_").replace(".", "_"))


def _plan(model: Model, name: str, stack: Stack, stateful: bool) -> Plan:
    last = name == model.last
    readers = [s for n, s in model.stacks.items() if n != name and name in s.reads()]
    owner = model.owner(stack)
    return Plan(
        name=name,
        alone=len(model.stacks) == 1,
        stateful=last and stateful,
        owner=model.stacks[owner] if owner else None,
        mask_wanted=bool(readers) or (last and _asks_for_padding(model)),
        finals_wanted=frozenset(_finals(model, name, stack, readers)),
    )


def _asks_for_padding(model: Model) -> bool:
    """Whether a head needs to know which tokens are real: to pool over time, or for a loss at every position."""
    heads = model.heads.values()
    return any(head.labels_positions if head.pooled == "none" else head.pooled != "final_state" for head in heads)


def _finals(model: Model, name: str, stack: Stack, readers: list[Stack]) -> set[int]:
    """Flat indices of the recurrent layers whose final states are read."""
    indices = [n for n, layer in enumerate(stack.flat()) if layer.recurrent]
    bridges = [layer.recurrent.bridge for s in readers for layer in s.distinct() if layer.recurrent]
    if any(bridge and bridge.from_ == name and bridge.state == "final" for bridge in bridges):
        return set(indices)
    return set(indices[-1:]) if name == model.last and _reads_final_state(model) else set()


def _reads_final_state(model: Model) -> bool:
    return any(head.pooled == "final_state" for head in model.heads.values())


def _memory(built: Built, facts: Facts, stack: Stack) -> Memory:
    finals = [built.finals[n] for n, layer in enumerate(stack.flat()) if layer.recurrent and n in built.finals]
    return Memory(built.x, built.mask, facts.source._replace(finals=finals))


def _tables(model: Model, stack: Stack) -> Tables | None:
    owner = model.owner(stack)
    return _owned(model, owner) if owner else None


def _owned(model: Model, name: str) -> Tables:
    """The token tables of a stack, as tied weights named from the root."""
    table, stack = model.table(name), model.stacks[name]
    assert table is not None
    return table.tables(name, int(table.d_model or 0), int(stack.d_model or 0))


def _reading(model: Model, built: Built, stateful: bool) -> Reading:
    """What the heads read."""
    layers, table = list(model.stacks[model.last].flat()), model.table(model.last)
    final = None
    if _reads_final_state(model) and (recurrent := layers[-1].recurrent):
        from seqspec.ops.state import SelectState  # not at the top: few models need it

        select = SelectState(
            recurrent.num_layers - 1, recurrent.layers.directions, "sum" if recurrent.merge == "sum" else "all"
        )
        final = (built.finals[len(layers) - 1][0], select)
    owner = model.owner(model.stacks[model.last]) or model.last
    tokens = _owned(model, owner).tokens if table else None
    return Reading(built.x, built.mask, final, tokens, stateful)


def _outputs(root: Builder, model: Model, reading: Reading) -> list[Value]:
    if model.head:
        output = model.head.build(root, reading)
        return [replace(output, hint="embedding") if model.head.kind == "embedding" else output]
    if model.outputs:
        return [replace(head.build(root, reading, f"{n}_head"), hint=n) for n, head in model.heads.items()]
    return [replace(reading.x, hint="last_hidden_state")]
