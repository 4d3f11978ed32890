"""g2p-en's checkpoint20.npz -> safetensors under the names of spec.yaml.

    python examples/g2p/convert.py [ARCHIVE] -o g2p.safetensors

Without ARCHIVE the installed package's own is used. The package is not imported: importing it starts downloads.
"""

import argparse
from importlib.metadata import distribution

import numpy as np
from safetensors.numpy import save_file

NAMES = {
    "enc_emb": "encoder.embed_tokens.weight",
    "enc_w_ih": "encoder.layers.0.gru.weight_ih_l0",
    "enc_w_hh": "encoder.layers.0.gru.weight_hh_l0",
    "enc_b_ih": "encoder.layers.0.gru.bias_ih_l0",
    "enc_b_hh": "encoder.layers.0.gru.bias_hh_l0",
    "dec_emb": "decoder.embed_tokens.weight",
    "dec_w_ih": "decoder.layers.0.gru.weight_ih_l0",
    "dec_w_hh": "decoder.layers.0.gru.weight_hh_l0",
    "dec_b_ih": "decoder.layers.0.gru.bias_ih_l0",
    "dec_b_hh": "decoder.layers.0.gru.bias_hh_l0",
    "fc_w": "head.weight",
    "fc_b": "head.bias",
}


def convert(archive: str, output: str) -> None:
    """Gate order and layout are torch's on both sides, so that names are all that changes."""
    with np.load(archive, allow_pickle=False) as arrays:
        save_file({ours: arrays[theirs] for theirs, ours in NAMES.items()}, output)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", nargs="?", metavar="ARCHIVE")
    parser.add_argument("-o", "--output", required=True, metavar="FILE")
    args = parser.parse_args()
    archive = args.archive or str(distribution("g2p-en").locate_file("g2p_en/checkpoint20.npz"))
    convert(archive, args.output)


if __name__ == "__main__":
    main()
