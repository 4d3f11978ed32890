"""Graph -> something that runs: PyTorch text, that text executed, ONNX files."""
