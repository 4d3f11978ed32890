"""[{folder, prompts, count}] on stdin -> greedy ids by onnxruntime-genai, as JSON; run where that is installed."""

import json
import sys

import numpy as np
import onnxruntime_genai as og


def generate(folder: str, prompts: list[list[int]], count: int) -> list[list[int]]:
    """Prompts of one length -> the ids after each."""
    length = len(prompts[0])
    model = og.Model(folder)
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=length + count, batch_size=len(prompts))
    generator = og.Generator(model, params)
    generator.append_tokens(np.array(prompts, np.int32))
    while not generator.is_done():
        generator.generate_next_token()
    return [[int(n) for n in generator.get_sequence(row)][length:] for row in range(len(prompts))]


print(json.dumps([generate(**asked) for asked in json.load(sys.stdin)]))
