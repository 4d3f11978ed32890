"""python -m seqspec"""

from __future__ import annotations

from seqspec.cli.main import main

main()
