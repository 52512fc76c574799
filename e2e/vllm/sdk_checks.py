"""Talk to real vLLM through Ramjet with the official SDKs: sdk_checks.py URL. Prints a line a check, exits 1 at a fault."""
import sys

import anthropic
import openai

url = sys.argv[1]
client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=60)
claude = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0, timeout=60)
hello = [{"role": "user", "content": "Hello there, how do you do?"}]


def models():
    assert [m.id for m in client.models.list()] == ["tiny"]


def chat():
    a = client.chat.completions.create(model="tiny", messages=hello, max_tokens=8)
    assert a.usage.prompt_tokens > 5 and a.usage.completion_tokens > 0 and a.choices[0].finish_reason in ("length", "stop")


def chat_stream():
    chunks = list(client.chat.completions.create(
        model="tiny", messages=hello, max_tokens=8, stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].usage.completion_tokens > 0 and not chunks[-1].choices
    assert any(c.choices and c.choices[0].finish_reason for c in chunks)


def raw_headers():
    a = client.chat.completions.with_raw_response.create(model="tiny", messages=hello, max_tokens=1)
    assert a.headers["x-ramjet-engine"] in ("a", "b") and int(a.headers["x-ramjet-match"]) >= 0


def responses():
    a = client.responses.create(model="tiny", input="Hello", max_output_tokens=8)
    assert a.usage.input_tokens > 0 and a.status in ("incomplete", "completed")
    kinds = [e.type for e in client.responses.create(model="tiny", input="Hello", max_output_tokens=8, stream=True)]
    assert kinds[0] == "response.created" and kinds[-1] in ("response.completed", "response.incomplete"), kinds


def messages():
    a = claude.messages.create(model="tiny", messages=hello, max_tokens=8)
    assert a.usage.output_tokens > 0 and a.stop_reason
    with claude.messages.stream(model="tiny", messages=hello, max_tokens=8) as s:
        assert s.get_final_message().usage.output_tokens > 0
    assert claude.messages.count_tokens(model="tiny", messages=hello).input_tokens > 0


def unknown_model():
    try:
        client.chat.completions.create(model="other", messages=hello)
    except openai.NotFoundError:
        return
    raise AssertionError("an unknown model was served")


for check in (models, chat, chat_stream, raw_headers, responses, messages, unknown_model):
    check()
    print(check.__name__)
