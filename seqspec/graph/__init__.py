"""The graph: symbolic sizes, values, nodes, regions, and the signature of a compiled model."""
