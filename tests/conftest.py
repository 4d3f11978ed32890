"""Fixtures that several folders of tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
import real_packages


@pytest.fixture(scope="session")
def g2p_archive() -> Path:
    """The NumPy archive of a trained GRU encoder-decoder: letters to sounds."""
    return real_packages.data(real_packages.G2P)


@pytest.fixture(scope="session")
def minilm_folder() -> Path:
    """all-MiniLM-L6-v2 as a Hugging Face directory."""
    return real_packages.data(real_packages.MINILM)
