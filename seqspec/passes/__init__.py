"""Passes rewrite a graph, one file per rewrite, named for its result. `pipeline` orders them for each target."""
