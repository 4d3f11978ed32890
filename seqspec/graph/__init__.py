"""The graph: symbolic sizes, values, nodes, regions, and the signature a compiled model shows."""
