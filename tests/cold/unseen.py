"""Fields whose change makes a sound spec wrong, so that no other graph can be compared. Read by test_language.py."""

from __future__ import annotations

UNSEEN = {
    ("Attend", "from"): "there is one stack to read",
    ("Bridge", "from"): "there is one stack to read",
    ("CrossAttention", "from"): "there is one stack to read",
    ("Model", "encoder"): "a decoder that reads it cannot be without",
    ("Model", "seqspec"): "there is one version",
    ("Model", "tokenizer"): "makes ids of text, outside the graph",
    ("Stack", "blocks"): "patterns name them; what is in them is looked at by itself",
    ("Stack", "input"): "another kind has other required fields",
    ("Tokenizer", "eos"): "as the tokenizer itself",
    ("Tokenizer", "file"): "as the tokenizer itself",
    ("Tokenizer", "start"): "as the tokenizer itself",
    ("Tokens", "share"): "without it the input needs a size of its own",
}
