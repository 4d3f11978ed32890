"""seqspec: a declarative architecture compiler for sequence models."""
