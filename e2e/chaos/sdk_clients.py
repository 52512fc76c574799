"""Real SDKs as clients: sdk_clients.py URL SEED

Says that it is ready, begins at a line on standard input, sends until that closes, and prints what became of each as one JSON line. The SDKs do not try again
by themselves: each request has one id and one outcome.
"""

import json
import random
import sys
import threading

import anthropic
import openai

url, seed = sys.argv[1], int(sys.argv[2])
stopping = threading.Event()
printing = threading.Lock()


def tell(**outcome):
    with printing:
        print(json.dumps(outcome), flush=True)


def prompt(rng, name):
    return f"Document {rng.randrange(3)}. " + "the engine sails by night " * rng.randrange(1, 60) + f"This is request {name}."


def openai_request(rng, client, name):
    request = {"model": "m", "temperature": 0, "max_tokens": rng.randrange(1, 50),
               "messages": [{"role": "user", "content": prompt(rng, name)}]}
    headers = {"X-Request-Id": name}
    text, status, head, ended, left = "", 0, "", False, ""
    stream = rng.random() < 0.7
    leaves = stream and rng.random() < 0.15
    code = problem = ""
    try:
        if stream:
            raw = client.chat.completions.with_raw_response.create(**request, stream=True, extra_headers=headers)
            status, head = raw.status_code, raw.headers.get("x-request-id", "")
            events = raw.parse()
            for count, event in enumerate(events):
                for choice in event.choices:
                    text += choice.delta.content or ""
                    ended = ended or choice.finish_reason in ("stop", "length")
                    code = "abort" if choice.finish_reason == "abort" else code
                if leaves and count > 3:
                    left = "fin"
                    break
            events.close()
        else:
            raw = client.chat.completions.with_raw_response.create(**request, extra_headers=headers)
            status, head = raw.status_code, raw.headers.get("x-request-id", "")
            answer = raw.parse()
            text = answer.choices[0].message.content or ""
            ended = answer.choices[0].finish_reason in ("stop", "length")
            if not ended:
                text = ""
    except openai.APIStatusError as e:
        status, code = e.status_code, str((e.body or {}).get("code") if isinstance(e.body, dict) else "error") or "error"
    except Exception as e:  # whatever it is, a client sees an error
        problem, code = repr(e)[:300], "error"
    tell(id=name, path="/v1/chat/completions", request=request, stream=stream, status=status, head_id=head, whole=not problem and not left,
         success=ended and not left and not problem, code=code, text=text, left=left, problem=problem)


def anthropic_request(rng, client, name):
    request = {"model": "m", "max_tokens": rng.randrange(1, 50), "messages": [{"role": "user", "content": prompt(rng, name)}]}
    text, status, head, ended = "", 0, "", False
    code = problem = ""
    try:
        with client.messages.stream(**request, extra_headers={"X-Request-Id": name}) as events:
            status, head = events.response.status_code, events.response.headers.get("x-request-id", "")
            for event in events:
                if event.type == "content_block_delta" and event.delta.type == "text_delta":
                    text += event.delta.text
                if event.type == "message_delta":
                    ended = event.delta.stop_reason in ("end_turn", "max_tokens")
                    code = "" if ended else "abort"
    except anthropic.APIStatusError as e:
        status, code = e.status_code, "error"
    except Exception as e:  # whatever it is, a client sees an error
        problem, code = repr(e)[:300], "error"
    tell(id=name, path="/v1/messages", request=request, stream=True, status=status, head_id=head, whole=not problem,
         success=ended and not problem and not code, code=code, text=text, left="", problem=problem)


def work(number, make, send):
    rng = random.Random(seed * 1000 + number)
    client = make()
    count = 0
    while not stopping.is_set():
        count += 1
        send(rng, client, f"x-sdk{number}-{count}")


makers = [
    (lambda: openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=60), openai_request),
    (lambda: openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=60), openai_request),
    (lambda: anthropic.Anthropic(base_url=url, api_key="none", max_retries=0, timeout=60), anthropic_request),
]
print("ready", flush=True)
sys.stdin.readline()
threads = [threading.Thread(target=work, args=(i, make, send)) for i, (make, send) in enumerate(makers)]
for t in threads:
    t.start()
sys.stdin.read()
stopping.set()
for t in threads:
    t.join()
