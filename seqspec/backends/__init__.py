"""Backends turn a graph into something that runs: PyTorch text, that text executed, ONNX files."""
