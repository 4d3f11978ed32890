"""The sound specs that tests go over."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent
EXAMPLES = sorted((HERE.parents[1] / "examples").rglob("*.yaml"))
VALID = sorted((HERE / "fixtures/specs/valid").glob("*.yaml"))
INVALID = sorted((HERE / "fixtures/specs/invalid").glob("*.yaml"))
SOUND = EXAMPLES + VALID
