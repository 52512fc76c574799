#!/usr/bin/env python3
"""Write chat_golden.json: conversations and what jinja2, set up as transformers sets it up, makes of them.

    pip install jinja2==3.1.6
    python3 sim/testdata/make_chat_golden.py sim/model/chat_template.jinja > sim/testdata/chat_golden.json
"""
import copy
import json
import sys

from jinja2.sandbox import ImmutableSandboxedEnvironment

WEATHER = '{"type": "function", "function": {"name": "get_weather", "description": "Say \\"how\\" it is \\u2014 \\u5929\\u6c17", "parameters": {"type": "object", "properties": {"city": {"type": "string", "enum": ["K\\u00f6ln", "Oslo"]}, "days": {"type": "integer", "default": 3, "maximum": 1e3}}, "required": ["city"]}, "strict": null}}'
NUMBERS = '{"z":[1,-0,1.0,-0.0,0.1,1e5,1E+16,123456789012345678,1e22,1.5e-5,0.0001,123456789012345678901234567890,1e400,-1e400,5e-324,1.7976931348623157e308,100000000000000000000.0],"a":{"b":1,"c":2,"b":3},"e":{},"l":[],"t":true,"f":false,"n":null,"s":"\\b\\f\\n\\r\\t\\u0001\\u001f\\u007f\\/<>&\\u2028\\ud83d\\ude00"}'


def call(name, arguments):
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}


U = {"role": "user", "content": "What is the weather?"}
S = {"role": "system", "content": "Be brief.\n"}
A = {"role": "assistant", "content": "It rains."}
CASES = [
    ([U], None, {}),
    ([S, U], None, {}),
    ([S, U], None, {"add_generation_prompt": False}),
    ([S, U, A, U], None, {"enable_thinking": False}),
    ([S, U, A, U], None, {"enable_thinking": True}),
    ([U], [WEATHER], {}),
    ([S, U], [WEATHER, NUMBERS], {}),
    ([{"role": "system", "content": ""}, U], None, {}),
    ([{"role": "system", "content": ""}, U], [WEATHER], {}),
    ([U, S], None, {}),
    ([{"role": "developer", "content": "Be kind."}, U], None, {}),
    ([], None, {}),
    ([S], None, {}),
    ([U, {"role": "assistant", "content": None, "tool_calls": [call("get_weather", '{"city":"K\\u00f6ln","days":2}')]}, {"role": "tool", "content": '{"sky": "grey"}', "tool_call_id": "call_1"}], [WEATHER], {}),
    ([U, {"role": "assistant", "content": "Let me see.", "tool_calls": [call("a\"b", ""), call("b", "[1, 2.50]"), call("c", '"bare\\n text"'), call("d", NUMBERS)]}, {"role": "tool", "content": "1"}, {"role": "tool", "content": "2\n"}, {"role": "tool", "content": ""}, A, {"role": "tool", "content": "late"}, U], None, {}),
    ([{"role": "tool", "content": "first"}, {"role": "tool", "content": "second"}], None, {"add_generation_prompt": False}),
    ([U, {"role": "assistant", "content": "Rain.", "reasoning": "Look\nout."}, U, {"role": "assistant", "content": "", "reasoning": "hm"}], None, {}),
    ([{"role": "user", "content": "  <|im_end|> {{ x }} {% raw %} \u4f60\u597d \U0001f600 & < > \" ' \\ \n\n"}], None, {}),
    ([{"role": "user", "content": None}, {"role": "assistant", "content": None}], None, {}),
]


def main():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    env.filters["tojson"] = lambda x: json.dumps(x, ensure_ascii=False)
    with open(sys.argv[1], encoding="utf-8") as f:
        template = env.from_string(f.read())
    rows = []
    for messages, tools, options in CASES:
        options = {"add_generation_prompt": True, **options}
        seen = copy.deepcopy(messages)
        for m in seen:
            for c in m.get("tool_calls", []):  # as vLLM does before it renders
                text = c["function"]["arguments"]
                c["function"]["arguments"] = json.loads(text) if text else {}
        text = template.render(messages=seen, tools=[json.loads(t) for t in tools] if tools else None, **options)
        rows.append({"messages": messages, "tools": tools, **options, "text": text})
    json.dump(rows, sys.stdout, indent=1)
    print()


main()
