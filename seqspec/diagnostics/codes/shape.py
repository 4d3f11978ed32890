"""SEQ1xx: the shape of the spec, field by field."""

from __future__ import annotations

from ._code import Code

SHAPE: dict[str, Code] = {
    "SEQ101": Code(
        "unknown-field",
        "The field does not exist here.",
        "The language is closed: a key that is not known is an error and never ignored, "
        "since a misspelt `dropout` would otherwise train without it. One spelling per "
        "concept: `d_model`, `heads`, `kv_heads`, `head_dim`, `d_ff`, `hidden_size`, "
        "`vocab_size`, `dropout`, `eps`.",
        bad="{kind: ffn, d_ff: 2048, dropuot: 0.1}",
        good="{kind: ffn, d_ff: 2048, dropout: 0.1}",
    ),
    "SEQ102": Code(
        "missing-field",
        "A required field is missing.",
        "The field has no default, because no value suits most models.",
        bad="input: {kind: tokens}",
        good="input: {kind: tokens, vocab_size: 32000}",
    ),
    "SEQ103": Code(
        "unknown-kind",
        "The `kind` is not one of those known here.",
        "`kind` chooses among alternatives. A bare word stands for `{kind: word}`.",
        bad="norm: layer_norm",
        good="norm: layernorm",
    ),
    "SEQ104": Code(
        "wrong-type",
        "The value has the wrong type.",
        'Nothing is converted: `true` is not 1, `8.0` and `"8"` are not 8. A whole number is '
        "fine where a float is asked for. `yes`, `no`, `on` and `off` are text in YAML 1.2: "
        "write `true` or `false`.",
        bad="bias: no",
        good="bias: false",
    ),
    "SEQ105": Code(
        "bad-choice",
        "The value is not one of the allowed words.",
        "The field takes one of a fixed list of words, which the message shows.",
        bad="norm_placement: before",
        good="norm_placement: pre",
    ),
    "SEQ106": Code(
        "out-of-range",
        "The number is outside its range.",
        "Sizes are at least 1, probabilities lie in [0, 1), and no number may be infinite or NaN.",
        bad="dropout: 1.5",
        good="dropout: 0.1",
    ),
    "SEQ107": Code(
        "bad-name",
        "The name is not an identifier.",
        "Names become parts of parameter names and of emitted Python, so they start with a "
        "letter or underscore and hold at most 64 letters, digits and underscores (a model's "
        "`name` also `.` and `-`). Python keywords, and what PyTorch modules call their own, such "
        "as `forward`, are refused.",
        bad="name: my model!",
        good="name: my-model",
    ),
    "SEQ108": Code(
        "missing-kind",
        "The mapping does not say its `kind`.",
        "Here several alternatives are possible and `kind` chooses one.",
        bad="position: {max_length: 512}",
        good="position: {kind: learned, max_length: 512}",
    ),
    "SEQ109": Code(
        "wrong-length",
        "The list is too short or too long.",
        "A stack has at least one layer, a block at least one sublayer, a pattern at least one name.",
        bad="layers: []",
        good="layers: [{kind: gru, hidden_size: 64}]",
    ),
    "SEQ110": Code(
        "exclusive-fields",
        "Two fields exclude each other.",
        "Both say the same thing in different ways; keep one of them.",
        bad="mask: {kind: window, size: 128, left: 64}",
        good="mask: {kind: window, size: 128}",
    ),
    "SEQ111": Code(
        "language-version",
        "The language version is not supported.",
        "This release reads version 1. Write `seqspec: 1`, as a whole number.",
        bad="seqspec: 2",
        good="seqspec: 1",
    ),
    "SEQ112": Code(
        "no-stack",
        "The spec has neither an encoder nor a decoder.",
        "A model is at least one stack.",
        bad="seqspec: 1\nname: empty",
        good=(
            "seqspec: 1\nname: a\nencoder: {input: {kind: features, size: 8}, layers: [{kind: gru, hidden_size: 8}]}"
        ),
    ),
    "SEQ113": Code(
        "misplaced-field",
        "The field exists, but not here.",
        "The message says where the field belongs.",
        bad="{kind: attention, heads: 8, vocab_size: 32000}",
        good="input: {kind: tokens, vocab_size: 32000}",
    ),
    "SEQ114": Code(
        "reserved",
        "The key is reserved for a later version.",
        "A later version will give it a meaning, so this version refuses it instead of ignoring it.",
    ),
    "SEQ115": Code(
        "number-as-text",
        "A number is written as text.",
        "`1_000`, `1,000`, `4k` and quoted digits are text in YAML 1.2. Write the digits.",
        bad="vocab_size: 32_000",
        good="vocab_size: 32000",
    ),
    "SEQ116": Code(
        "bad-python-value",
        "The value given from Python cannot be part of a spec.",
        "A spec holds mappings with text keys, lists, text, whole numbers, floats and "
        "booleans, at most 64 levels deep and without cycles.",
    ),
    "SEQ199": Code(
        "invalid-value",
        "The value is not valid.",
        "The message says what is wrong with it.",
    ),
}
