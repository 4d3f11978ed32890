"""SEQ0xx: the file, its YAML, `extends` and `--set`."""

from __future__ import annotations

from ._code import Code

DOCUMENT: dict[str, Code] = {
    "SEQ001": Code(
        "yaml-syntax",
        "The file is not valid YAML.",
        "The YAML parser stopped here. Most often a bracket or a quote is not closed, a line "
        "is indented differently from its neighbours, or a value holds `: ` and needs "
        "quotes.",
        bad="layers: [{kind: lstm, hidden_size: 64}",
        good="layers: [{kind: lstm, hidden_size: 64}]",
    ),
    "SEQ002": Code(
        "empty-document",
        "The file holds no document.",
        "The file is empty or holds only comments. The smallest spec names a language "
        "version, a model, one stack and a head; `seqspec init` writes one.",
        bad="# nothing yet",
        good="seqspec: 1\nname: my-model",
    ),
    "SEQ003": Code(
        "duplicate-key",
        "A mapping has the same key twice.",
        "YAML requires the keys of a mapping to be unique, yet many loaders silently keep the "
        "last one. Both places are shown: delete one. A key written beside a merge key `<<` is "
        "not a duplicate; it wins over the merged one.",
        bad="{kind: attention, heads: 4, heads: 8}",
        good="{kind: attention, heads: 8}",
    ),
    "SEQ004": Code(
        "null-value",
        "`null` is not a value.",
        "An empty value, `~` and `null` could mean the default, nothing or a forgotten "
        "value, so none of them is accepted. Leave the key out to get its default, or write "
        "the word `none` where a field offers it.",
        bad="norm:",
        good="norm: none",
    ),
    "SEQ005": Code(
        "not-utf-8",
        "The file is not UTF-8 text.",
        "Specs are UTF-8; a leading byte order mark is ignored. UTF-16 and UTF-32 files are "
        "refused: save the file again as UTF-8.",
        bad="a file saved as UTF-16",
        good="seqspec: 1",
    ),
    "SEQ006": Code(
        "forbidden-character",
        "The text holds a character that YAML does not allow here.",
        "NUL and other control characters are not text. The line separators U+0085, U+2028 "
        "and U+2029 are refused as well, because parsers disagree on whether they end a "
        'line. Inside double quotes write such a character as an escape, "\\u2028".',
        bad="name: a\\0b, with a real NUL byte",
        good="name: ab",
    ),
    "SEQ007": Code(
        "tab-indentation",
        "A tab is used for indentation.",
        "YAML indents with spaces only. Replace the tab with spaces, two by convention.",
        bad="encoder:\n	d_model: 64",
        good="encoder:\n  d_model: 64",
    ),
    "SEQ008": Code(
        "tag",
        "YAML tags are not accepted.",
        "A spec is plain data: mappings, lists, text, numbers, true and false. No tag is "
        "accepted, standard or not. Quote a value to make it text.",
        bad="name: !!str 42",
        good='name: "42"',
    ),
    "SEQ009": Code(
        "complex-key",
        "A mapping key must be a plain word.",
        "Keys are names. A list, a mapping or an alias cannot be one.",
        bad="? [a, b]\n: 1",
        good="a: 1\nb: 1",
    ),
    "SEQ010": Code(
        "several-documents",
        "The file holds more than one YAML document.",
        "One file is one spec. Split the file at the `---` line, or use `extends` where the specs share a part.",
        bad="name: a\n---\nname: b",
        good="name: a",
    ),
    "SEQ011": Code(
        "not-a-mapping",
        "A spec must be a mapping of keys to values.",
        "The outermost value of the file is a list or a single word. A spec starts with `seqspec: 1`.",
        bad="- {kind: lstm, hidden_size: 64}",
        good="seqspec: 1\nname: my-model",
    ),
    "SEQ012": Code(
        "file-too-large",
        "The file is larger than 1 MiB.",
        "Specs are written by people; a large model uses `repeat`, not a large file. The limit keeps a check fast.",
    ),
    "SEQ013": Code(
        "too-deep",
        "The document is nested more than 64 levels deep.",
        "No spec needs such depth; the limit keeps hostile files harmless. Aliases count as what they stand for.",
    ),
    "SEQ014": Code(
        "too-many-values",
        "The document holds more than 50,000 values.",
        "Values are counted after aliases are expanded and over all files that the spec "
        "extends, so that a small file cannot stand for millions of values.",
    ),
    "SEQ015": Code(
        "too-many-aliases",
        "The document uses more than 200 aliases.",
        "Write a repeated part once and use `repeat`, or put it under `blocks` and name it in a `pattern`.",
    ),
    "SEQ016": Code(
        "cyclic-anchor",
        "An anchor contains an alias of itself.",
        "The value would contain itself, endlessly.",
        bad="block: &b [*b]",
        good="block: &b [{kind: ffn, d_ff: 64}]",
    ),
    "SEQ017": Code(
        "unknown-anchor",
        "An alias names an anchor that does not exist.",
        "`*name` stands for the value marked `&name` earlier in the same file. Anchors do not cross files.",
        bad="global: *locl",
        good="local: &local [{kind: ffn, d_ff: 64}]\nglobal: *local",
    ),
    "SEQ018": Code(
        "duplicate-anchor",
        "Two values carry the same anchor.",
        "A later alias would mean the second one, which is easy to misread. Give each anchor its own name.",
        bad="a: &x 1\nb: &x 2",
        good="a: &x 1\nb: &y 2",
    ),
    "SEQ019": Code(
        "bad-merge-key",
        "A merge key `<<` must hold a mapping or a list of mappings.",
        "`<<: *base` brings in the keys of `base`. Keys written beside it win, and in a list "
        "earlier mappings win over later ones.",
        bad="a: {<<: 3}",
        good="base: &base {heads: 8}\na: {<<: *base, bias: false}",
    ),
    "SEQ020": Code(
        "number-out-of-range",
        "The number cannot be represented as written.",
        "A number has at most 100 characters, and a float must not become infinite or zero "
        "when it is read as a 64-bit float. Quote the value if it is text.",
        bad="eps: 1e-400",
        good="eps: 1e-12",
    ),
    "SEQ021": Code(
        "yaml-version",
        "The file asks for another version of YAML.",
        "Specs are YAML 1.2, in which `no` and `on` are text and `010` is ten. A `%YAML 1.1` "
        "line says otherwise; delete it.",
        bad="%YAML 1.1\n---\nname: a",
        good="name: a",
    ),
    "SEQ030": Code(
        "unreadable-file",
        "The file does not exist or cannot be read.",
        "Check the spelling of the path and the permissions of the file.",
    ),
    "SEQ031": Code(
        "not-a-regular-file",
        "The path is not a regular file.",
        "Folders, pipes, sockets and devices are not read, because reading them may never end.",
    ),
    "SEQ032": Code(
        "bad-extends",
        "`extends` must be the relative path of one file.",
        "Absolute paths, `~`, backslashes and addresses are refused, so that a spec means the same on every machine.",
        bad="extends: /etc/base.yaml",
        good="extends: base.yaml",
    ),
    "SEQ033": Code(
        "extends-outside",
        "`extends` leaves the folder of the spec.",
        "An extended file, after symbolic links are followed, must lie in the folder of the "
        "outermost spec or below it. Copy the base there.",
        bad="extends: ../../base.yaml",
        good="extends: base.yaml",
    ),
    "SEQ034": Code(
        "extends-cycle",
        "Files extend each other in a circle.",
        "The chain is shown in the message; one of its files must not extend the next.",
    ),
    "SEQ035": Code(
        "extends-too-long",
        "More than 16 files extend each other.",
        "Merge some of the files into one; `seqspec show --resolved` prints the merged spec.",
    ),
    "SEQ036": Code(
        "extends-without-folder",
        "`extends` needs a spec that is a file.",
        "A spec given as text has no folder to look in. Save it, or merge the base into it.",
    ),
    "SEQ040": Code(
        "bad-override",
        "`--set` takes KEY=VALUE.",
        "KEY is a path such as `decoder.layers[0].repeat`; VALUE is one YAML value on one "
        "line: a word, a number, `{…}` or `[…]`.",
        bad="--set decoder.d_model",
        good="--set decoder.d_model=256",
    ),
    "SEQ041": Code(
        "override-index",
        "`--set` names a list item that does not exist.",
        "Items are counted from 0. A list can be replaced whole but not extended: `--set a.layers=[…]`.",
        bad="--set decoder.layers[3].repeat=2",
        good="--set decoder.layers[0].repeat=2",
    ),
    "SEQ042": Code(
        "override-path",
        "`--set` goes through a value that has no such part.",
        "A number has no keys, a list has no names and a mapping has no indices. A kind "
        "written as a bare word may be entered: after `norm: rmsnorm`, `--set norm.eps=1e-6` "
        "gives `{kind: rmsnorm, eps: 1e-6}`.",
        bad="--set decoder.d_model.size=256",
        good="--set decoder.d_model=256",
    ),
}
