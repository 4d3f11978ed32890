"""Graph -> Graph, one file a rewrite, named for its result; `pipeline` says which a target needs, and in what order."""
