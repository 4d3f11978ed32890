"""SEQ3xx: the graph and its shapes."""

from __future__ import annotations

from ._code import Code

GRAPH: dict[str, Code] = {
    "SEQ301": Code(
        "shapes-differ",
        "Two shapes that meet are not equal.",
        "The message names both shapes and where each comes from.",
    ),
    "SEQ302": Code(
        "dimension-unproven",
        "Two dimensions cannot be proved equal.",
        "Dimensions are polynomials in the names of the inputs' dimensions. What cannot be "
        "proved is refused instead of assumed, since it would fail for some input.",
    ),
    "SEQ303": Code(
        "types-differ",
        "Two element types that meet are not equal.",
        "Nothing is cast silently.",
    ),
    "SEQ304": Code(
        "broken-graph",
        "The graph breaks one of its own invariants.",
        "This is a bug in seqspec and not in the spec. Please report it with the spec.",
    ),
    "SEQ305": Code(
        "dimension-not-positive",
        "A dimension is zero or negative.",
        "Convolutions and strides leave nothing of the length. Use a smaller kernel or stride.",
    ),
    "SEQ306": Code(
        "model-too-large-to-build",
        "The stack has more layers than the limit.",
        "A stack has at most 10,000 layers, with repeats, patterns and `num_layers` counted out.",
        bad="layers: [{kind: gru, hidden_size: 64, repeat: 1000000}]",
        good="layers: [{kind: gru, hidden_size: 64, repeat: 100}]",
    ),
}
