"""SEQ5xx: running a compiled model."""

from __future__ import annotations

from ._code import Code

RUNTIME: dict[str, Code] = {
    "SEQ501": Code(
        "provider-unavailable",
        "The execution provider is not available.",
        "onnxruntime and onnxruntime-gpu overwrite each other: install one. `seqspec doctor` shows what is found.",
    ),
    "SEQ502": Code(
        "input-missing",
        "An input is missing.",
        "The message lists the inputs of the model.",
    ),
    "SEQ503": Code(
        "input-unknown",
        "The model has no such input.",
        "The message lists the inputs of the model.",
    ),
    "SEQ504": Code(
        "input-shape",
        "An input has the wrong shape.",
        "The message names the shape found and the one expected.",
    ),
    "SEQ505": Code(
        "input-type",
        "An input has the wrong element type.",
        "Ids and masks are integers; features have the model's element type, and no float is cast.",
    ),
    "SEQ506": Code(
        "past-table-length",
        "The sequence is longer than the position table.",
        "A learned table ends at `max_length`. Cached tokens count as well.",
    ),
    "SEQ507": Code(
        "corrupt-artefact",
        "The compiled model is damaged or incomplete.",
        "A file is missing, its content differs from the hash in `seqspec.json`, or that file itself is not what was "
        "written. Nothing in a compiled folder is meant to be edited. Compile it again.",
    ),
    "SEQ508": Code(
        "artefact-version",
        "The compiled model was written by another version.",
        "This release cannot read its manifest. Compile the spec again.",
    ),
    "SEQ509": Code(
        "state-mismatch",
        "The state does not belong to this model or batch.",
        "State is passed back as it came out: same names, batch size and element type.",
    ),
    "SEQ510": Code(
        "token-outside",
        "A token id is outside the vocabulary.",
        "Ids run from 0 to vocab_size - 1.",
    ),
    "SEQ511": Code(
        "cannot-generate",
        "The model cannot generate.",
        "Generation needs a causal stack with an `lm` head.",
    ),
    "SEQ512": Code(
        "no-state",
        "The model has no state to carry.",
        "A bidirectional stack, or one whose mask is not causal, runs the whole sequence in one call.",
    ),
    "SEQ513": Code(
        "empty-input",
        "An input is empty.",
        "At least one sequence and one position are needed.",
    ),
    "SEQ514": Code(
        "generation-option",
        "An option of generation is outside its range.",
        "A temperature of 0 is greedy: it takes the likeliest id. `top_k` and `top_p` restrict what is drawn from at "
        "higher temperatures.",
        bad="session.generate(ids, max_new_tokens=20, top_p=0.9)",
        good="session.generate(ids, max_new_tokens=20, temperature=1.0, top_p=0.9)",
    ),
    "SEQ515": Code(
        "execution-failed",
        "onnxruntime stopped while it ran the model.",
        "The message is onnxruntime's own. Memory may have run out; if not, please report it with the spec.",
    ),
    "SEQ516": Code(
        "not-a-compiled-model",
        "The command does not run this.",
        "`run` and `generate` take a folder that `compile --to onnx` wrote, `verify` also one of `--to torch`: the "
        "folder itself, not a spec or a file in it.",
        bad="seqspec generate model.yaml --ids 1,2,3 --max-new-tokens 8",
        good="seqspec compile model.yaml --to onnx -o out\nseqspec generate out --ids 1,2,3 --max-new-tokens 8",
    ),
    "SEQ517": Code(
        "wrong-run-argument",
        "A compiled model does not take this argument.",
        "The message names the argument, what it takes and what was given.",
        bad="session.run(ids)",
        good='session.run({"input_ids": ids})',
    ),
    "SEQ518": Code(
        "text",
        "There is no way from text to ids here.",
        "`--text` needs a spec that names a `tokenizer`, which the compiled folder then holds, and a version of the "
        "tokenizers library that reads it. Ids work without either.",
        bad="seqspec generate out --text hello --max-new-tokens 8    # of a spec without `tokenizer`",
        good="seqspec generate out --ids 1,2,3 --max-new-tokens 8",
    ),
}
