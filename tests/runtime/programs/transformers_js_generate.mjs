// [{folder, prompts, masks, count}] on stdin -> greedy ids by Transformers.js, as JSON; takes a folder node_modules.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const { AutoModelForCausalLM, Tensor, env } = createRequire(`${process.argv[2]}/`)('@huggingface/transformers');
env.allowRemoteModels = false;
env.localModelPath = '/';

const tensor = (rows) => new Tensor('int64', BigInt64Array.from(rows.flat(), BigInt), [rows.length, rows[0].length]);
const made = [];
for (const { folder, prompts, masks, count } of JSON.parse(readFileSync(0))) {
  const model = await AutoModelForCausalLM.from_pretrained(folder);
  const inputs = { input_ids: tensor(prompts), attention_mask: tensor(masks) };
  const ids = await model.generate({ ...inputs, max_new_tokens: count, do_sample: false });
  made.push(ids.tolist().map((row) => row.slice(prompts[0].length).map(Number)));
}
console.log(JSON.stringify(made));
