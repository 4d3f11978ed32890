"""The bytes of source and ONNX are the same in every process, whatever seeds its hashes, its folder, its threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from .digests import digests
from .rounds import HALVES, examples

ROOT = Path(__file__).parents[2]
PROGRAM = """
import json, sys
from tests.property.digests import digests
json.dump([digests(text) for text in json.load(sys.stdin)], sys.stdout)
"""
SETTINGS = (
    {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "TZ": "UTC", "LANG": "C"},
    {"PYTHONHASHSEED": "77", "OMP_NUM_THREADS": "2", "TZ": "Asia/Tokyo", "LANG": "C.UTF-8"},
)


def test_every_process_writes_the_same_bytes(tmp_path: Path) -> None:
    texts = [case.spec.text for number in (0, 1) for case in examples(number)[HALVES[1]]]
    running = []
    for number, settings in enumerate(SETTINGS):
        folder = tmp_path / str(number)
        folder.mkdir()
        environment = {**os.environ, **settings, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", PROGRAM]
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        running.append(process)
    here = [list(digests(text)) for text in texts]
    for process in running:
        output, _ = process.communicate(json.dumps(texts), timeout=120)
        assert process.returncode == 0
        assert json.loads(output) == here
