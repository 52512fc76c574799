"""The openai Python SDK through Ramjet: sync and async, streaming and not."""

import asyncio
import hashlib
import json

import openai
from openai import AsyncOpenAI, OpenAI

from checks import MODEL, RAMJET, SIMS, at_rest, check, fault, fetch, main, same, state, total, until

# Retries of the SDK would hide failures, so only the checks of those retries have them.
client = OpenAI(base_url=RAMJET + "/v1", api_key="none", max_retries=0)
retrying = OpenAI(base_url=RAMJET + "/v1", api_key="none")
HELLO = [{"role": "user", "content": "Tell me about streams of bytes."}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather of a city",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]},
        },
    }
]


def direct(body, path="/v1/chat/completions", engine="b"):
    """What an engine answers when it is asked itself. Texts depend on seed and prompt alone, so both say the same."""
    return fetch(SIMS[engine] + path, body)


@check
def models_list_and_retrieve():
    listed = client.models.list()
    same([m.id for m in listed.data], [MODEL], "the models")
    same(client.models.retrieve(MODEL).id, MODEL, "the model")
    # Nothing of the engine's own description is lost.
    same(listed.data[0].max_model_len, fetch(SIMS["a"] + "/v1/models")["data"][0]["max_model_len"], "max_model_len")


@check
def chat():
    answer = client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=12)
    want = direct({"model": MODEL, "messages": HELLO, "max_tokens": 12})
    same(answer.choices[0].message.content, want["choices"][0]["message"]["content"], "the text")
    same(answer.choices[0].finish_reason, "length", "the finish reason")
    same(answer.usage.completion_tokens, 12, "the tokens")


@check
def chat_stream():
    want = direct({"model": MODEL, "messages": HELLO, "max_tokens": 40})["choices"][0]["message"]["content"]
    text, usage = "", None
    with client.chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=40, stream=True, stream_options={"include_usage": True}
    ) as stream:
        for chunk in stream:
            for choice in chunk.choices:
                text += choice.delta.content or ""
            usage = chunk.usage or usage
    same(text, want, "the text")
    same(usage.completion_tokens, 40, "the tokens")


@check
def chat_stream_helper():
    want = direct({"model": MODEL, "messages": HELLO, "max_tokens": 20})["choices"][0]["message"]["content"]
    with client.chat.completions.stream(model=MODEL, messages=HELLO, max_tokens=20) as stream:
        text = "".join(event.delta for event in stream if event.type == "content.delta")
        snapshot = stream.current_completion_snapshot
    same(text, want, "the deltas")
    same(snapshot.choices[0].message.content, want, "the text put together")


@check
def chat_bodies_arrive_byte_for_byte():
    """The engine's record holds the sum of exactly the bytes that the SDK sent."""
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=[{"role": "user", "content": "Zeichen: äöü 🚀 \u2028"}], max_tokens=3)
    sent = raw.http_request.content
    got = state(raw.headers["x-ramjet-engine"])["bodies"][-1]
    same(got, hashlib.sha256(sent).hexdigest(), "the body")


@check
def chat_choices_logprobs_and_stop():
    answer = client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=5, n=3)
    same(len(answer.choices), 3, "the choices")
    same(sorted(c.index for c in answer.choices), [0, 1, 2], "their indexes")


@check
def headers_tell_the_way():
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=HELLO, max_tokens=2, extra_headers={"X-Request-Id": "sdk-1"})
    same(raw.headers["x-request-id"], "sdk-1", "the request id")
    assert raw.headers["x-ramjet-engine"] in SIMS, raw.headers["x-ramjet-engine"]
    same(raw.headers["x-ramjet-attempts"], "1", "the attempts")
    for name in ("x-ramjet-reason", "x-ramjet-match", "server-timing"):
        assert name in raw.headers, f"no {name} in {dict(raw.headers)}"
    same(raw.parse().id, "chatcmpl-sdk-1", "the id, which vLLM makes from the header")


@check
def tools():
    want = direct({"model": MODEL, "messages": HELLO, "tools": TOOLS, "tool_choice": "required", "max_tokens": 200})
    answer = client.chat.completions.create(model=MODEL, messages=HELLO, tools=TOOLS, tool_choice="required", max_tokens=200)
    call = answer.choices[0].message.tool_calls[0]
    same(call.function.name, "get_weather", "the function")
    same(call.function.arguments, want["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"], "the arguments")
    assert "city" in json.loads(call.function.arguments), call.function.arguments
    same(answer.choices[0].finish_reason, "tool_calls", "the finish reason")
    # The answer goes on with the call's result.
    turns = [*HELLO, answer.choices[0].message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    after = client.chat.completions.create(model=MODEL, messages=turns, tools=TOOLS, tool_choice="none", max_tokens=6)
    assert after.choices[0].message.content, after


@check
def tools_stream():
    want = direct({"model": MODEL, "messages": HELLO, "tools": TOOLS, "tool_choice": "required", "max_tokens": 200})
    name, arguments, finish = "", "", None
    for chunk in client.chat.completions.create(model=MODEL, messages=HELLO, tools=TOOLS, tool_choice="required", max_tokens=200, stream=True):
        for choice in chunk.choices:
            for call in choice.delta.tool_calls or []:
                name += call.function.name or ""
                arguments += call.function.arguments or ""
            finish = choice.finish_reason or finish
    same(name, "get_weather", "the function")
    same(arguments, want["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"], "the arguments")
    same(finish, "tool_calls", "the finish reason")


@check
def completions():
    want = direct({"model": MODEL, "prompt": "Once upon a time", "max_tokens": 9}, "/v1/completions")
    answer = client.completions.create(model=MODEL, prompt="Once upon a time", max_tokens=9)
    same(answer.choices[0].text, want["choices"][0]["text"], "the text")
    several = client.completions.create(model=MODEL, prompt=["one", "two"], max_tokens=3)
    same(len(several.choices), 2, "an answer for each prompt")


@check
def completions_stream():
    want = direct({"model": MODEL, "prompt": "Once upon a time", "max_tokens": 25}, "/v1/completions")["choices"][0]["text"]
    stream = client.completions.create(model=MODEL, prompt="Once upon a time", max_tokens=25, stream=True)
    same("".join(c.text for chunk in stream for c in chunk.choices), want, "the text")


@check
def embeddings():
    answer = client.embeddings.create(model=MODEL, input=["one", "two"])
    want = direct({"model": MODEL, "input": ["one", "two"]}, "/v1/embeddings")
    same([d.index for d in answer.data], [0, 1], "the indexes")
    got = answer.data[1].embedding
    assert len(got) == len(want["data"][1]["embedding"]) and max(abs(x - y) for x, y in zip(got, want["data"][1]["embedding"])) < 1e-6


@check
def responses():
    want = direct({"model": MODEL, "input": "Tell me a story", "max_output_tokens": 15}, "/v1/responses")
    answer = client.responses.create(model=MODEL, input="Tell me a story", max_output_tokens=15)
    same(answer.output_text, want["output"][0]["content"][0]["text"], "the text")
    same(answer.usage.output_tokens, 15, "the tokens")


@check
def responses_stream():
    want = direct({"model": MODEL, "input": "Tell me a story", "max_output_tokens": 30}, "/v1/responses")["output"][0]["content"][0]["text"]
    deltas, kinds = "", []
    with client.responses.create(model=MODEL, input="Tell me a story", max_output_tokens=30, stream=True) as stream:
        for event in stream:
            kinds.append(event.type)
            if event.type == "response.output_text.delta":
                deltas += event.delta
    same(deltas, want, "the text")
    same(kinds[0], "response.created", "the first event")
    assert kinds[-1] in ("response.completed", "response.incomplete"), kinds[-1]
    with client.responses.stream(model=MODEL, input="Tell me a story", max_output_tokens=30) as stream:
        for _ in stream:
            pass
        same(stream.get_final_response().output_text, want, "the helper's text")


@check
def responses_previous_and_retrieve():
    """What an engine stored is asked of that engine, however often."""
    raw = client.responses.with_raw_response.create(model=MODEL, input="My name is Ada.", max_output_tokens=5)
    first, made_by = raw.parse(), raw.headers["x-ramjet-engine"]
    for _ in range(6):
        raw = client.responses.with_raw_response.create(model=MODEL, input="Who am I?", previous_response_id=first.id, max_output_tokens=5)
        same(raw.headers["x-ramjet-engine"], made_by, "the engine of the next turn")
        same(raw.headers["x-ramjet-reason"], "stored-response", "the reason")
        same(raw.parse().previous_response_id, first.id, "the previous response")
        same(client.responses.retrieve(first.id).id, first.id, "the stored response")


@check
def responses_stream_is_remembered():
    created, made_by = None, None
    for _ in range(2):
        with client.responses.with_streaming_response.create(model=MODEL, input="Remember me", max_output_tokens=4, stream=True) as raw:
            made_by = raw.headers["x-ramjet-engine"]
            for event in raw.parse():
                if event.type == "response.created":
                    created = event.response.id
        for _ in range(3):
            again = client.responses.with_raw_response.create(model=MODEL, input="And?", previous_response_id=created, max_output_tokens=4)
            same(again.headers["x-ramjet-engine"], made_by, "the engine of the next turn")


@check
def unknown_model():
    try:
        client.chat.completions.create(model="no-such-model", messages=HELLO)
    except openai.NotFoundError as error:
        same(error.code, "model_not_found", "the code")
        same(error.param, "model", "the parameter")
        same(error.type, "not_found_error", "the type")
        same(error.response.headers.get("x-should-retry"), "false", "x-should-retry")
    else:
        raise AssertionError("an unknown model was served")
    try:
        client.models.retrieve("no-such-model")
    except openai.NotFoundError:
        pass
    else:
        raise AssertionError("an unknown model was found")


@check
def bad_requests():
    """The engine's own verdict comes through, with its words."""
    try:
        client.chat.completions.create(model=MODEL, messages=HELLO, temperature=-1)
    except openai.BadRequestError as error:
        assert "temperature" in str(error), error
    else:
        raise AssertionError("a negative temperature was accepted")
    before = total("requests")
    try:
        client.post("/chat/completions", cast_to=object, content=b'{"model": "sim", ', options={"headers": {"Content-Type": "application/json"}})
    except openai.BadRequestError as error:
        same(error.code, "invalid_request", "the code of Ramjet's own verdict")
    else:
        raise AssertionError("half a body was accepted")
    same(total("requests"), before, "requests that reached an engine")


@check
def server_errors_pass_untouched():
    fault(kind="status", status=500)
    try:
        client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=3)
    except openai.InternalServerError as error:
        same(error.status_code, 500, "the status")
    else:
        raise AssertionError("an engine's 500 was hidden")


@check
def retries_on_503():
    """Both engines answer 503 once: the second is tried, its answer passes, and the SDK's own retry succeeds."""
    fault(kind="status", status=503)
    try:
        client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=3)
    except openai.InternalServerError as error:
        same(error.status_code, 503, "the status")
        same(error.response.headers["x-ramjet-attempts"], "2", "the engines tried")
    else:
        raise AssertionError("503 of both engines was hidden")
    fault(kind="status", status=503)
    raw = retrying.chat.completions.with_raw_response.create(model=MODEL, messages=HELLO, max_tokens=3)
    same(raw.retries_taken, 1, "the SDK's retries")
    same(raw.parse().usage.completion_tokens, 3, "the tokens")


@check
def one_503_is_never_seen():
    fetch(SIMS["a"] + "/sim/fault", {"kind": "status", "status": 503})
    for _ in range(2):  # one of two goes to a
        raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=HELLO, max_tokens=3)
        same(raw.status_code, 200, "the status")


@check
def cancel_in_the_middle():
    """A client that leaves ends the engine's work at once."""
    aborted = total("aborted")
    stream = client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=3000, stream=True)
    for count, _ in enumerate(stream):
        if count == 5:
            break
    same(total("in_flight"), 1, "engines' requests while the stream runs")
    stream.close()
    at_rest()
    same(total("aborted"), aborted + 1, "requests aborted")


@check
def cancel_while_waiting():
    aborted = total("aborted")
    try:
        client.with_options(timeout=0.5).chat.completions.create(model=MODEL, messages=HELLO, max_tokens=3000)
    except openai.APITimeoutError:
        pass
    else:
        raise AssertionError("3,000 tokens came within 0.5 s")
    at_rest()
    same(total("aborted"), aborted + 1, "requests aborted")


@check
def an_engine_that_dies_ends_the_stream_with_an_error():
    """The SDK raises; it never takes half an answer for a whole one."""
    fault(kind="reset", after_tokens=5)
    text = ""
    try:
        for chunk in client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=50, stream=True):
            text += chunk.choices[0].delta.content or ""
    except openai.APIError as error:
        same(error.code, "engine_died", "the code")
    else:
        raise AssertionError("a stream that was cut looked whole")
    assert text, "nothing came before the end"


@check
async def async_chat_and_streams():
    """Many at once: each stream gets its own answer and nobody else's."""
    async with AsyncOpenAI(base_url=RAMJET + "/v1", api_key="none", max_retries=0) as many:

        async def one(number):
            messages = [{"role": "user", "content": f"Question number {number}"}]
            body = {"model": MODEL, "messages": messages, "max_tokens": 20}
            if number % 2:
                answer = await many.chat.completions.create(**body)
                text = answer.choices[0].message.content
            else:
                text = ""
                async for chunk in await many.chat.completions.create(**body, stream=True):
                    text += chunk.choices[0].delta.content or ""
            want = await asyncio.to_thread(direct, body)
            same(text, want["choices"][0]["message"]["content"], f"the text of {number}")

        await asyncio.gather(*(one(number) for number in range(24)))


@check
async def async_tools_responses_embeddings():
    async with AsyncOpenAI(base_url=RAMJET + "/v1", api_key="none", max_retries=0) as many:
        answer = await many.chat.completions.create(model=MODEL, messages=HELLO, tools=TOOLS, tool_choice="required", max_tokens=200)
        same(answer.choices[0].message.tool_calls[0].function.name, "get_weather", "the function")
        kinds = []
        async for event in await many.responses.create(model=MODEL, input="hello", max_output_tokens=5, stream=True):
            kinds.append(event.type)
        same(kinds[0], "response.created", "the first event")
        same(len((await many.embeddings.create(model=MODEL, input="one")).data), 1, "the embeddings")
        same([m.id async for m in many.models.list()], [MODEL], "the models")
        try:
            await many.chat.completions.create(model="no-such-model", messages=HELLO)
        except openai.NotFoundError:
            pass
        else:
            raise AssertionError("an unknown model was served")


@check
async def async_cancel_in_the_middle():
    aborted = total("aborted")
    async with AsyncOpenAI(base_url=RAMJET + "/v1", api_key="none", max_retries=0) as many:
        started = asyncio.Event()

        async def read():
            async for _ in await many.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=3000, stream=True):
                started.set()

        task = asyncio.create_task(read())
        await started.wait()
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            pass
        await asyncio.to_thread(until, "the engine's in_flight back to 0", lambda: total("in_flight") == 0)
    same(total("aborted"), aborted + 1, "requests aborted")


@check
async def async_retries_on_503():
    fault(kind="status", status=503)
    async with AsyncOpenAI(base_url=RAMJET + "/v1", api_key="none") as many:
        raw = await many.chat.completions.with_raw_response.create(model=MODEL, messages=HELLO, max_tokens=3)
        same(raw.retries_taken, 1, "the SDK's retries")


if __name__ == "__main__":
    main()
