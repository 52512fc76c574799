"""The anthropic Python SDK through Ramjet: messages, tokens, streams and tools."""

import asyncio
import hashlib

import anthropic
from anthropic import Anthropic, AsyncAnthropic

from checks import MODEL, RAMJET, SIMS, at_rest, check, fault, fetch, main, same, state, total

# Retries of the SDK would hide failures, so only the checks of those retries have them.
client = Anthropic(base_url=RAMJET, api_key="none", max_retries=0)
retrying = Anthropic(base_url=RAMJET, api_key="none")
HELLO = [{"role": "user", "content": "Tell me about streams of bytes."}]
TOOLS = [
    {
        "name": "get_weather",
        "description": "The weather of a city",
        "input_schema": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]},
    }
]


def direct(body, path="/v1/messages"):
    return fetch(SIMS["b"] + path, body)


@check
def messages():
    want = direct({"model": MODEL, "messages": HELLO, "max_tokens": 12})
    answer = client.messages.create(model=MODEL, messages=HELLO, max_tokens=12)
    same(answer.content[0].text, want["content"][0]["text"], "the text")
    same(answer.stop_reason, "max_tokens", "the reason for the end")
    same(answer.usage.output_tokens, 12, "the tokens")


@check
def messages_stream():
    want = direct({"model": MODEL, "messages": HELLO, "max_tokens": 40})["content"][0]["text"]
    kinds, text = [], ""
    with client.messages.create(model=MODEL, messages=HELLO, max_tokens=40, stream=True) as stream:
        for event in stream:
            kinds.append(event.type)
            if event.type == "content_block_delta":
                text += event.delta.text
    same(text, want, "the text")
    same(kinds[0], "message_start", "the first event")
    same(kinds[-2:], ["message_delta", "message_stop"], "the last events")


@check
def messages_stream_helper():
    want = direct({"model": MODEL, "messages": HELLO, "max_tokens": 30})["content"][0]["text"]
    with client.messages.stream(model=MODEL, messages=HELLO, max_tokens=30) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    same(text, want, "the text")
    same(final.content[0].text, want, "the final text")
    same(final.usage.output_tokens, 30, "the tokens")


@check
def bodies_arrive_byte_for_byte():
    raw = client.messages.with_raw_response.create(model=MODEL, messages=HELLO, max_tokens=2, system="Answer in German: äöü")
    same(state(raw.headers["x-ramjet-engine"])["bodies"][-1], hashlib.sha256(raw.http_request.content).hexdigest(), "the body")


@check
def count_tokens():
    want = direct({"model": MODEL, "messages": HELLO}, "/v1/messages/count_tokens")["input_tokens"]
    same(client.messages.count_tokens(model=MODEL, messages=HELLO).input_tokens, want, "the tokens")
    usage = client.messages.create(model=MODEL, messages=HELLO, max_tokens=1).usage
    # Anthropic counts what was read from the cache and what was written to it apart.
    parts = (usage.input_tokens, usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0)
    same(sum(parts), want, "the tokens of an answer")


@check
def tools():
    answer = client.messages.create(model=MODEL, messages=HELLO, max_tokens=200, tools=TOOLS, tool_choice={"type": "any"})
    same(answer.stop_reason, "tool_use", "the reason for the end")
    call = next(block for block in answer.content if block.type == "tool_use")
    same(call.name, "get_weather", "the tool")
    assert "city" in call.input, call.input
    turns = [
        *HELLO,
        {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in answer.content]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}]},
    ]
    after = client.messages.create(model=MODEL, messages=turns, max_tokens=6)
    assert after.content[0].text, after


@check
def tools_stream():
    want = client.messages.create(model=MODEL, messages=HELLO, max_tokens=200, tools=TOOLS, tool_choice={"type": "any"})
    with client.messages.stream(model=MODEL, messages=HELLO, max_tokens=200, tools=TOOLS, tool_choice={"type": "any"}) as stream:
        final = stream.get_final_message()
    call = next(block for block in final.content if block.type == "tool_use")
    same(call.input, next(block for block in want.content if block.type == "tool_use").input, "the input")


@check
def errors():
    try:
        client.messages.create(model="no-such-model", messages=HELLO, max_tokens=5)
    except anthropic.NotFoundError as error:
        same(error.body["type"], "error", "the shape")
        same(error.body["error"]["type"], "not_found_error", "the type")
    else:
        raise AssertionError("an unknown model was served")
    try:
        client.messages.create(model=MODEL, messages=HELLO, max_tokens=-1)
    except anthropic.BadRequestError as error:
        same(error.body["type"], "error", "the shape")
    else:
        raise AssertionError("a negative limit was accepted")


@check
def retries_on_503():
    fault(kind="status", status=503)
    raw = retrying.messages.with_raw_response.create(model=MODEL, messages=HELLO, max_tokens=3)
    same(raw.retries_taken, 1, "the SDK's retries")
    same(raw.parse().usage.output_tokens, 3, "the tokens")


@check
def cancel_in_the_middle():
    aborted = total("aborted")
    with client.messages.stream(model=MODEL, messages=HELLO, max_tokens=3000) as stream:
        for count, _ in enumerate(stream.text_stream):
            if count == 5:
                break
    at_rest()
    same(total("aborted"), aborted + 1, "requests aborted")


@check
def an_engine_that_dies_ends_the_stream_with_an_error():
    fault(kind="reset", after_tokens=5)
    try:
        with client.messages.stream(model=MODEL, messages=HELLO, max_tokens=50) as stream:
            text = "".join(stream.text_stream)
    except anthropic.APIError as error:
        same(error.body["type"], "error", "the shape")
        assert error.body["error"]["type"] == "api_error", error.body
    else:
        raise AssertionError(f"a stream that was cut looked whole: {text!r}")


@check
async def async_messages_and_streams():
    async with AsyncAnthropic(base_url=RAMJET, api_key="none", max_retries=0) as many:

        async def one(number):
            turns = [{"role": "user", "content": f"Question number {number}"}]
            if number % 2:
                text = (await many.messages.create(model=MODEL, messages=turns, max_tokens=20)).content[0].text
            else:
                async with many.messages.stream(model=MODEL, messages=turns, max_tokens=20) as stream:
                    text = (await stream.get_final_message()).content[0].text
            want = await asyncio.to_thread(direct, {"model": MODEL, "messages": turns, "max_tokens": 20})
            same(text, want["content"][0]["text"], f"the text of {number}")

        await asyncio.gather(*(one(number) for number in range(16)))
        same((await many.messages.count_tokens(model=MODEL, messages=HELLO)).input_tokens > 0, True, "tokens counted")


@check
async def async_cancel_in_the_middle():
    aborted = total("aborted")
    async with AsyncAnthropic(base_url=RAMJET, api_key="none", max_retries=0) as many:
        async with many.messages.stream(model=MODEL, messages=HELLO, max_tokens=3000) as stream:
            async for _ in stream.text_stream:
                break
        await asyncio.to_thread(at_rest)
    same(total("aborted"), aborted + 1, "requests aborted")


if __name__ == "__main__":
    main()
