"""SEQ2xx: fields that are valid alone but wrong together."""

from __future__ import annotations

from ._code import Code

MEANING: dict[str, Code] = {
    "SEQ201": Code(
        "heads-do-not-divide-width",
        "`heads` does not divide `d_model`.",
        "Without `head_dim` each head takes d_model / heads channels, which must be a whole number.",
        bad="d_model: 10\nlayers: [{block: [{kind: attention, heads: 4}]}]",
        good="d_model: 12\nlayers: [{block: [{kind: attention, heads: 4}]}]",
    ),
    "SEQ202": Code(
        "kv-heads-do-not-divide-heads",
        "`kv_heads` does not divide `heads`.",
        "In grouped-query attention query head h reads key/value head h // (heads / "
        "kv_heads), so the group size must be a whole number.",
        bad="{kind: attention, heads: 8, kv_heads: 3}",
        good="{kind: attention, heads: 8, kv_heads: 4}",
    ),
    "SEQ203": Code(
        "odd-rotary-width",
        "Rotary positions need an even width.",
        "rope rotates pairs of channels, so head_dim times `fraction` must be even.",
        bad="{kind: attention, heads: 8, head_dim: 15}",
        good="{kind: attention, heads: 8, head_dim: 16}",
    ),
    "SEQ204": Code(
        "widths-differ",
        "Two widths that meet are not equal.",
        "No projection is added silently. Write the width that the next part expects, or a "
        "projection where the part offers one.",
        bad=("d_model: 512\nlayers: [{kind: lstm, hidden_size: 256}, {block: [{kind: ffn, d_ff: 64}]}]"),
        good=("d_model: 512\nlayers: [{kind: lstm, hidden_size: 512}, {block: [{kind: ffn, d_ff: 64}]}]"),
    ),
    "SEQ205": Code(
        "unknown-stack",
        "The name does not refer to a stack of this spec.",
        "`from` names another stack that is written in the same spec.",
        bad="{kind: cross_attention, from: encodr, heads: 8}",
        good="{kind: cross_attention, from: encoder, heads: 8}",
    ),
    "SEQ206": Code(
        "name-needed",
        "A block repeats a kind, so its sublayers need names.",
        "A sublayer is named after its kind, and its parameters after it; two of one kind need a `name`.",
        bad="block: [{kind: ffn, d_ff: 64}, {kind: ffn, d_ff: 64}]",
        good="block: [{kind: ffn, d_ff: 64}, {kind: ffn, name: second, d_ff: 64}]",
    ),
    "SEQ207": Code(
        "mask-not-causal",
        "A decoder's mask lets a position see the future.",
        "A layer's mask replaces the stack's. A decoder is causal unless the stack says "
        "`causal: false`, so the mask must imply `causal`; `all` combines masks.",
        bad="mask: {kind: window, size: 128}",
        good="mask: {all: [causal, {kind: window, size: 128}]}",
    ),
    "SEQ208": Code(
        "position-on-layer",
        "This kind of position cannot be set on a layer.",
        "`sinusoidal` and `learned` are added once to the embedding and belong to the stack. "
        "`rope`, `alibi` and `relative_bias` act in self-attention and may be set there; "
        "cross-attention has none.",
        bad="{kind: attention, heads: 8, position: sinusoidal}",
        good="{kind: attention, heads: 8, position: rope}",
    ),
    "SEQ209": Code(
        "dropout-without-effect",
        "Dropout on a recurrent layer with `num_layers: 1` does nothing.",
        "It acts between the layers of one recurrent stack, as in PyTorch. Raise `num_layers` or leave it out.",
        bad="{kind: lstm, hidden_size: 256, dropout: 0.3}",
        good="{kind: lstm, hidden_size: 256, num_layers: 2, dropout: 0.3}",
    ),
    "SEQ210": Code(
        "bridge-layers-differ",
        "A bridge joins stacks with different numbers of layers.",
        "Decoder layer n starts from the state of encoder layer n. If the counts differ, write `layer: last`.",
        bad="initial_state: {kind: bridge, from: encoder}",
        good="initial_state: {kind: bridge, from: encoder, layer: last}",
    ),
    "SEQ211": Code(
        "tied-widths-differ",
        "A tied head and its token table have different widths.",
        "`tied: true` uses the token table as the output matrix. Make the widths equal, or give "
        "the head a `projection`.",
        bad="input: {kind: tokens, vocab_size: 100, d_model: 8}\nd_model: 16\nhead: {kind: lm, tied: true}",
        good="input: {kind: tokens, vocab_size: 100, d_model: 8}\nd_model: 16\nhead: {kind: lm}",
    ),
    "SEQ212": Code(
        "tied-needs-tokens",
        "A tied head needs a stack that reads tokens.",
        "There is no token table to tie to: the stack's input is features, audio or an image.",
        bad="input: {kind: features, size: 8}\nhead: {kind: lm, tied: true}",
        good="input: {kind: features, size: 8}\nhead: {kind: lm, vocab_size: 32}",
    ),
    "SEQ213": Code(
        "encoder-unread",
        "Nothing reads the encoder.",
        "A decoder reads an encoder through `cross_attention`, a `bridge` or `attend`. An "
        "encoder that nothing reads would be computed in vain.",
        bad="block: [{kind: attention, heads: 8}]",
        good=("block: [{kind: attention, heads: 8}, {kind: cross_attention, from: encoder, heads: 8}]"),
    ),
    "SEQ214": Code(
        "share-target",
        "`share` names something that cannot be shared.",
        "`share: encoder.input` names the token input of another stack. That input may not share "
        "itself, nor be the one where `share` is written.",
        bad="input: {kind: tokens, share: encoder.layers}",
        good="input: {kind: tokens, share: encoder.input}",
    ),
    "SEQ215": Code(
        "share-conflict",
        "A shared input also sets what it shares.",
        "Sizes come from the owner of the table. Only `pad_id` and `scale` may be set again.",
        bad="input: {kind: tokens, share: encoder.input, vocab_size: 100}",
        good="input: {kind: tokens, share: encoder.input}",
    ),
    "SEQ216": Code(
        "pool-impossible",
        "The stack cannot be pooled in this way.",
        "`final_state` needs a recurrent last layer; `first` and `last` need a sequence.",
        bad=("layers: [{block: [{kind: ffn, d_ff: 64}]}]\nhead: {kind: classifier, classes: 2, pool: final_state}"),
        good="layers: [{block: [{kind: ffn, d_ff: 64}]}]\nhead: {kind: classifier, classes: 2, pool: mean}",
    ),
    "SEQ217": Code(
        "state-of-bidirectional",
        "A bidirectional stack has no state to carry.",
        "The backward direction starts at the end of the sequence, so a run cannot be continued. "
        "Use a unidirectional layer to run in chunks or step by step.",
        bad="{kind: gru, hidden_size: 64, bidirectional: true, initial_state: given}",
        good="{kind: gru, hidden_size: 64, initial_state: given}",
    ),
    "SEQ218": Code(
        "unknown-block",
        "A pattern names a block that does not exist.",
        "`pattern` lists names of the stack's `blocks`.",
        bad="pattern: [local, globl]",
        good="pattern: [local, global]",
    ),
    "SEQ219": Code(
        "unused-block",
        "A named block is used by no pattern.",
        "A block that no pattern names would change nothing. Use it or delete it.",
        bad="layers: [{pattern: [local]}]",
        good="layers: [{pattern: [local, global]}]",
    ),
    "SEQ220": Code(
        "width-unknown",
        "The width of the stack is not known.",
        "Blocks add to a residual of width `d_model`; write it on the stack, its input or `defaults`.",
        bad="decoder: {input: {kind: tokens, vocab_size: 100}}",
        good="decoder: {input: {kind: tokens, vocab_size: 100}, d_model: 64}",
    ),
    "SEQ221": Code(
        "reference-to-itself",
        "A stack reads itself, or stacks read each other in a circle.",
        "`from` must name a stack that is complete before this one starts.",
        bad="encoder: {layers: [{block: [{kind: cross_attention, from: encoder, heads: 8}]}]}",
        good="decoder: {layers: [{block: [{kind: cross_attention, from: encoder, heads: 8}]}]}",
    ),
    "SEQ222": Code(
        "bidirectional-decoder",
        "A decoder layer reads the future.",
        "A bidirectional or not causal layer in a decoder would see what it has to predict. "
        "Write it in an encoder, or say `causal: false` on the stack.",
        bad="decoder: {layers: [{kind: lstm, hidden_size: 64, bidirectional: true}]}",
        good="decoder: {layers: [{kind: lstm, hidden_size: 64}]}",
    ),
    "SEQ223": Code(
        "duplicate-name",
        "Two parts have the same name.",
        "Parameter names would collide. Names derived from a name count as well: a sublayer "
        "called `x` has a norm called `x_norm`.",
        bad="block: [{kind: ffn, name: a, d_ff: 64}, {kind: attention, name: a, heads: 8}]",
        good="block: [{kind: ffn, name: a, d_ff: 64}, {kind: attention, name: b, heads: 8}]",
    ),
    "SEQ224": Code(
        "bridge-source",
        "A bridge needs a recurrent layer on both sides.",
        "`state: final` takes the last state of a recurrent encoder; `state: mean` takes the "
        "mean output of any encoder. Cells carry h, and LSTM also c.",
        bad="initial_state: {kind: bridge, from: encoder, state: final}",
        good="initial_state: {kind: bridge, from: encoder, state: mean, map: linear_tanh}",
    ),
    "SEQ225": Code(
        "attend-layers",
        "A cell with `attend` has one layer and one direction.",
        "One cell attends in every step. Put further layers before or after it.",
        bad="{kind: gru, hidden_size: 64, num_layers: 2, attend: {from: encoder}}",
        good="{kind: gru, hidden_size: 64, attend: {from: encoder}}",
    ),
    "SEQ226": Code(
        "attend-combination",
        "These settings of `attend` do not go together.",
        "`input_feeding` and `output: tanh` belong to `query: current`, where `output: hidden` "
        "would leave the context unread; `score: dot` needs equal widths of h and memory; "
        "`d_attention` belongs to `additive` and `concat`.",
        bad="attend: {from: encoder, score: additive, query: previous, input_feeding: true}",
        good="attend: {from: encoder, score: additive, query: current, input_feeding: true}",
    ),
    "SEQ227": Code(
        "head-and-stack",
        "The head does not fit the stack that it reads.",
        "`lm` predicts the next token of a causal stack, `masked_lm` and `ctc` read an "
        "encoder, and a `pool` other than `none` gives one vector per sequence.",
        bad="head: {kind: lm, tied: true, bias: true}",
        good="head: {kind: lm, tied: true}",
    ),
    "SEQ228": Code(
        "mask-impossible",
        "The mask is impossible as written.",
        "It allows nothing anywhere, refers to an input that the model does not have, or "
        "combines parts that contradict each other.",
        bad="mask: {kind: window, size: 0}",
        good="mask: {kind: window, size: 1}",
    ),
    "SEQ229": Code(
        "token-id-outside",
        "A token id is outside the vocabulary.",
        "Ids run from 0 to vocab_size - 1.",
        bad="input: {kind: tokens, vocab_size: 100, pad_id: 100}",
        good="input: {kind: tokens, vocab_size: 101, pad_id: 100}",
    ),
    "SEQ230": Code(
        "groups-do-not-divide",
        "Groups do not divide the width.",
        "Grouped norms, convolutions and projections split channels into equal groups.",
        bad="{kind: conv, channels: 10, groups: 4}",
        good="{kind: conv, channels: 12, groups: 4}",
    ),
    "SEQ231": Code(
        "size-not-divisible",
        "A length is not a multiple of the step that divides it.",
        "A patch must divide the image, and a chunk or block the length that it cuts.",
        bad="input: {kind: image, size: 225, patch: 16, channels: 3}",
        good="input: {kind: image, size: 224, patch: 16, channels: 3}",
    ),
    "SEQ232": Code(
        "no-effect",
        "The field would change nothing here.",
        "A key without effect is an error. Delete it, or write what it depends on.",
        bad="{kind: gru, hidden_size: 64, merge: sum}",
        good="{kind: gru, hidden_size: 64, bidirectional: true, merge: sum}",
    ),
    "SEQ233": Code(
        "share-parameters",
        "The entry cannot share its parameters over its repeats.",
        "Every repeat must have the same shapes: the width that comes in equals the width "
        "that goes out, and no setting may differ by layer.",
        bad="{kind: lstm, hidden_size: 128, repeat: 2, share: parameters}",
        good="{kind: lstm, hidden_size: 64, repeat: 2, share: parameters}",
    ),
    "SEQ234": Code(
        "position-conflict",
        "The kind of position does not fit here.",
        "Positions need attention or an embedding to act on, and a table needs `max_length`.",
        bad="position: rope\nlayers: [{kind: lstm, hidden_size: 64}]",
        good="layers: [{kind: lstm, hidden_size: 64}]",
    ),
    "SEQ235": Code(
        "norm-needed",
        "`norm_placement` is given without a `norm`.",
        "A placement says where the norm is applied; `norm` must say which one.",
        bad="norm_placement: pre",
        good="norm: rmsnorm\nnorm_placement: pre",
    ),
    "SEQ236": Code(
        "experts",
        "The numbers of experts do not fit together.",
        "`top_k` is at most the number of experts, and groups divide that number.",
        bad="{kind: moe, experts: 4, top_k: 8}",
        good="{kind: moe, experts: 8, top_k: 4}",
    ),
    "SEQ237": Code(
        "token-feature-needed",
        "The model has no such input.",
        "Token types, documents and labels exist for stacks that read tokens and declare them.",
        bad="mask: {kind: given, name: tokens}",
        good="mask: {kind: given, name: my_mask}",
    ),
    "SEQ238": Code(
        "cache-not-equivalent",
        "Running in steps differs from running at once.",
        "The rotary scalings `dynamic` and `longrope` change with the length, so a cache filled before the switch "
        "holds keys rotated by other angles. Past that length the results differ by definition.",
        bad="position: {kind: rope, scaling: {kind: dynamic, factor: 4, original_max_length: 2048}}",
        good="position: {kind: rope, scaling: {kind: linear, factor: 4}}",
        severity="warning",
    ),
    "SEQ239": Code(
        "even-width-needed",
        "The width must be even.",
        "Sinusoidal tables hold pairs of sine and cosine, and gated maps split into halves.",
        bad="d_model: 255\nposition: sinusoidal",
        good="d_model: 256\nposition: sinusoidal",
    ),
    "SEQ240": Code(
        "no-tokenizer",
        "The file is not a tokenizer.",
        "A `tokenizer.json` is what the tokenizers library saves: JSON with a `model` that has a `vocab`.",
        bad="tokenizer: vocab.txt",
        good="tokenizer: tokenizer.json",
    ),
    "SEQ241": Code(
        "tokenizer-vocabulary",
        "The tokenizer does not fit the model's vocabulary.",
        "Every id that the tokenizer knows needs a row of the token table; a table may be larger. `eos` and `start` "
        "are tokens of the file.",
        bad="tokenizer: tokenizer.json    # of 32,000 tokens\ninput: {kind: tokens, vocab_size: 31999}",
        good="tokenizer: tokenizer.json\ninput: {kind: tokens, vocab_size: 32000}",
    ),
}
