"""Stubs of the libraries that a CUDA provider links, so that it places graphs on a machine without a GPU.

Which functions there have to be is read off the provider itself: what it links by `nm`, cuDNN's by the names that it
looks up.
"""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parent / "stub.c"


def build(provider: Path, folder: Path) -> None:
    """The shared libraries, in `folder`."""
    written = set(re.findall(r"(?:HANDLE|NUMBER)\((\w+)|(?:int|size_t|\*+)\s*(\w+)\(", SOURCE.read_text()))
    own = {name for pair in written for name in pair if name}
    for library, functions in _linked(provider).items():
        rest = "".join(f"int {name}() {{ return 0; }}\n" for name in sorted(functions - own))
        text = folder / f"{library}.c"
        text.write_text(f'#include "{SOURCE}"\n{rest}')
        versions = folder / f"{library}.map"
        versions.write_text(f"{library} {{ global: *; }};\n")
        named = [f"-Wl,-soname,{library}", f"-Wl,--version-script={versions}"]
        subprocess.run(["gcc", "-w", "-shared", "-fPIC", "-o", folder / library, text, *named], check=True)


def _linked(provider: Path) -> dict[str, set[str]]:
    """Functions by the library that has them."""
    needed = subprocess.run(["readelf", "-d", provider], capture_output=True, text=True, check=True).stdout
    wanted = subprocess.run(
        ["nm", "-D", "--undefined-only", provider], capture_output=True, text=True, check=True
    ).stdout
    found: dict[str, set[str]] = defaultdict(set)
    for library in re.findall(r"\[(lib(?:cu)[\w.]+)\]", needed):
        found[library] |= set(re.findall(rf"(\w+)@{re.escape(library)}", wanted))
    found["libcuda.so.1"] |= set(re.findall(r" (cu[A-Z]\w+)$", wanted, re.M))
    found["libcudnn.so.9"] = {n.decode() for n in re.findall(rb"\0(cudnn[A-Z]\w+)(?=\0)", provider.read_bytes())}
    return found
