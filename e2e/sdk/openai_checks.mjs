// The openai npm package through Ramjet, shortly: what its own HTTP stack could do differently.
import OpenAI from "openai";

const { RAMJET_URL, SIM_A, SIM_B } = process.env;
const options = { baseURL: RAMJET_URL + "/v1", apiKey: "none" };
// Retries of the SDK would hide failures, so only the check of those retries has them.
const client = new OpenAI({ ...options, maxRetries: 0 });
const retrying = new OpenAI(options);
const model = "sim";
const messages = [{ role: "user", content: "Tell me about streams of bytes." }];
const tools = [{
  type: "function",
  function: { name: "get_weather", parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] } },
}];

const post = async (url, body) => (await fetch(url, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) })).json();
const direct = (body) => post(SIM_B + "/v1/chat/completions", body);
const both = (path, body) => Promise.all([SIM_A, SIM_B].map((url) => post(url + path, body)));
const total = async (field) => {
  const states = await Promise.all([SIM_A, SIM_B].map(async (url) => (await fetch(url + "/sim/state")).json()));
  return states.reduce((sum, state) => sum + state[field], 0);
};
const same = (got, want, what) => {
  if (JSON.stringify(got) !== JSON.stringify(want)) throw new Error(`${what}: got ${JSON.stringify(got)}, want ${JSON.stringify(want)}`);
};
const atRest = async () => {
  for (const end = Date.now() + 10_000; (await total("in_flight")) !== 0; await new Promise((next) => setTimeout(next, 10))) {
    if (Date.now() > end) throw new Error("an engine still works");
  }
};

const checks = {
  async models() {
    const ids = [];
    for await (const entry of client.models.list()) ids.push(entry.id);
    same(ids, [model], "the models");
    same((await client.models.retrieve(model)).id, model, "the model");
  },
  async chat() {
    const want = await direct({ model, messages, max_tokens: 12 });
    const answer = await client.chat.completions.create({ model, messages, max_tokens: 12 });
    same(answer.choices[0].message.content, want.choices[0].message.content, "the text");
  },
  async chat_stream() {
    const want = await direct({ model, messages, max_tokens: 40 });
    let text = "", usage;
    for await (const chunk of await client.chat.completions.create({ model, messages, max_tokens: 40, stream: true, stream_options: { include_usage: true } })) {
      text += chunk.choices[0]?.delta.content ?? "";
      usage = chunk.usage ?? usage;
    }
    same(text, want.choices[0].message.content, "the text");
    same(usage.completion_tokens, 40, "the tokens");
  },
  async many_at_once() {
    await Promise.all([...Array(16).keys()].map(async (number) => {
      const body = { model, messages: [{ role: "user", content: `Question number ${number}` }], max_tokens: 10 };
      const [answer, want] = await Promise.all([client.chat.completions.create(body), direct(body)]);
      same(answer.choices[0].message.content, want.choices[0].message.content, `the text of ${number}`);
    }));
  },
  async tools() {
    const answer = await client.chat.completions.create({ model, messages, tools, tool_choice: "required", max_tokens: 200 });
    same(answer.choices[0].message.tool_calls[0].function.name, "get_weather", "the function");
    JSON.parse(answer.choices[0].message.tool_calls[0].function.arguments);
  },
  async embeddings() {
    const answer = await client.embeddings.create({ model, input: ["one", "two"], encoding_format: "float" });
    same(answer.data.map((entry) => entry.index), [0, 1], "the indexes");
  },
  async responses() {
    const first = await client.responses.create({ model, input: "My name is Ada.", max_output_tokens: 5 });
    const kinds = [];
    for await (const event of await client.responses.create({ model, input: "Who am I?", previous_response_id: first.id, max_output_tokens: 5, stream: true })) kinds.push(event.type);
    same(kinds[0], "response.created", "the first event");
  },
  async errors() {
    const error = await client.chat.completions.create({ model: "no-such-model", messages }).catch((caught) => caught);
    if (!(error instanceof OpenAI.NotFoundError)) throw new Error(`got ${error}`);
    same(error.code, "model_not_found", "the code");
    const bad = await client.chat.completions.create({ model, messages, temperature: -1 }).catch((caught) => caught);
    if (!(bad instanceof OpenAI.BadRequestError)) throw new Error(`got ${bad}`);
  },
  async retries_on_503() {
    await both("/sim/fault", { kind: "status", status: 503 });
    const answer = await retrying.chat.completions.create({ model, messages, max_tokens: 3 });
    same(answer.usage.completion_tokens, 3, "the tokens");
  },
  async cancel_in_the_middle() {
    const aborted = await total("aborted");
    const stream = await client.chat.completions.create({ model, messages, max_tokens: 3000, stream: true });
    let count = 0;
    for await (const _ of stream) if (++count === 5) break;
    await atRest();
    same(await total("aborted"), aborted + 1, "requests aborted");
  },
};

let failed = false;
for (const [name, run] of Object.entries(checks)) {
  try {
    await both("/sim/clear", {});
    await run();
    await atRest();
    console.log(`PASS ${name}`);
  } catch (error) {
    failed = true;
    console.log(`FAIL ${name}\n${String(error.stack).replace(/^/gm, "    ")}`);
  }
}
process.exit(failed ? 1 : 0);
