"""SEQ4xx: compiling, exporting, importing, verifying."""

from __future__ import annotations

from ._code import Code

TARGETS: dict[str, Code] = {
    "SEQ401": Code(
        "missing-extra",
        "A package needed for this is not installed.",
        "The core checks specs with PyYAML and pydantic alone; torch and ONNX are extras.",
        bad="pip install seqspec-compiler",
        good="pip install 'seqspec-compiler[torch,onnx]'",
    ),
    "SEQ402": Code(
        "model-too-large",
        "The model does not fit into memory.",
        "Nothing was allocated. The message names the largest part and the memory found; "
        "`seqspec report` lists all parts.",
    ),
    "SEQ403": Code(
        "output-exists",
        "The output exists already.",
        "Nothing was changed. Choose another path, or delete the old output.",
    ),
    "SEQ404": Code(
        "output-unwritable",
        "The output cannot be written.",
        "Check the path, its permissions and the free space.",
    ),
    "SEQ405": Code(
        "unsupported-form",
        "The target has no form for this part.",
        "The support matrix in the documentation lists every form of every part; `portable` supports the most.",
    ),
    "SEQ406": Code(
        "verification-failed",
        "The compiled model disagrees with its reference.",
        "Both were run on the same random inputs and differ by more than the tolerance. The "
        "output was removed. Please report it with the spec.",
    ),
    "SEQ407": Code(
        "weights-missing",
        "The weights lack a parameter of the model.",
        "Names follow `<stack>.layers.<n>.<name>.…`; the message lists the missing ones.",
    ),
    "SEQ408": Code(
        "weights-shape",
        "A weight's shape differs from its parameter's.",
        "The message names both shapes.",
    ),
    "SEQ409": Code(
        "weights-unreadable",
        "The weights file cannot be read.",
        "Weights are safetensors files. Pickled checkpoints are never loaded, because loading one runs its code.",
    ),
    "SEQ410": Code(
        "weights-unexpected",
        "The weights hold a parameter that the model lacks.",
        "Either the spec or the file belongs to another model.",
    ),
    "SEQ411": Code(
        "dtype-unsupported",
        "The target does not support this element type.",
        "The message lists those it supports.",
    ),
    "SEQ412": Code(
        "import-unsupported",
        "The model cannot be imported.",
        "Its family, or a setting that changes its numbers, is not known. Nothing is approximated.",
    ),
    "SEQ413": Code(
        "import-incomplete",
        "The folder is not a complete model.",
        "An import reads `config.json` and safetensors files.",
    ),
    "SEQ414": Code(
        "training-only",
        "This part exists only in training.",
        "Exported graphs hold no dropout, losses or checkpointing.",
    ),
    "SEQ415": Code(
        "several-stacks",
        "The model is more than one graph.",
        "A spec with two stacks exports `encoder.onnx` and `decoder.onnx`; a single graph was asked for.",
    ),
    "SEQ416": Code(
        "program-cannot-drive",
        "The other program cannot drive this model.",
        "onnxruntime-genai and Transformers.js feed ids, a mask and positions, and carry the keys and values of every "
        "layer from call to call. They know of no other inputs or states. `seqspec run` and `generate` run every "
        "model, and so does any program that feeds onnxruntime itself.",
        bad="seqspec compile examples/nmt-bahdanau.yaml --to onnx --genai -o out",
        good="seqspec compile examples/tiny-llama.yaml --to onnx --genai -o out",
    ),
    "SEQ417": Code(
        "wrong-argument",
        "The function does not take this argument.",
        "The message names the argument, what it takes and what was given. Nothing is converted silently.",
        bad='seqspec.to_onnx("model.yaml", "out", logits="final")',
        good='seqspec.to_onnx("model.yaml", "out", logits="last")',
    ),
    "SEQ418": Code(
        "weights-type",
        "A weight is not an array of floats.",
        "Weights are NumPy arrays, tensors or a safetensors file, in float64, float32, float16 or bfloat16. Complex "
        "numbers, integers, lists, and tensors on the device `meta`, which hold no data, are refused.",
        bad='weights["head.bias"] = [0.0, 0.0]',
        good='weights["head.bias"] = numpy.zeros(2, numpy.float32)',
    ),
    "SEQ419": Code(
        "weights-value",
        "A weight holds NaN, infinity or a number out of range.",
        "NaN and infinity spread into every output, and usually mean that training diverged. A number must also lie "
        "in the range of the dtype that the model computes in: float16 ends at 65,504.",
    ),
}
