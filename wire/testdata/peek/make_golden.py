#!/usr/bin/env python3
"""Writes golden.json: what Python makes of request bodies.

Run by hand, never by a test:  python3 make_golden.py > golden.json

For every input the file holds the verdict of json.loads(bytes), which is what
vLLM's server calls, and for objects the members that Ramjet routes on, read
by the simplest means that Python has. Needs pydantic 2 (vLLM's validator) for
the flags. Add an input to one of the families below and run it again.
"""

import base64
import json
import random
import sys

from pydantic import TypeAdapter, ValidationError

FLAG = TypeAdapter(bool)
CASES = []


def add(family, *bodies):
    for body in bodies:
        CASES.append((family, body if isinstance(body, bytes) else body.encode("utf-8", "surrogatepass")))


def members(family, *texts):
    """Each text is the inside of an object."""
    add(family, *["{" + t + "}" for t in texts])


# Documents: what may stand alone, what may stand around it.
add("document", "", " ", "\t\n\r ", "{}", "[]", "null", "true", "false", '""', '"a"', "0", "1", "[1]", " {} ", "\n{}\n", "{}\n\n",
    "{}{}", "{} {}", "[][]", "{},", "{};", "}", "]", "{", "[", "{]", "[}", "[1", "[1,", "[1}", '{"a"', '{"a":', '{"a":1', '{"a":1,', '{"a":1]',
    ",", ":", "[,]", "[1,]", "[,1]", "[1,,2]", "[1 2]", "[1:2]", "{,}", '{"a":1,}', '{,"a":1}', '{"a":1,,"b":2}', '{"a":1 "b":2}',
    '{"a" 1}', '{"a":}', '{"a"::1}', '{:1}', "{1:2}", "{a:1}", "{'a':1}", "['a']", "{null:1}", '{"a":1}x', '{"a":1} //c', "/**/{}", "#\n{}",
    "{}\x0c", "\x0b{}", '{"a"\x0b:1}', "{}\x00", "\u00a0{}", "{}\u2028", "\u2028", "[1,\u00a02]", "[\x1f]", "{}\x1a", "undefined", "None", "True",
    "tru", "truee", "nul", "nulll", "fals", "t", "n", "f", "TRUE", "Null", "[true,false,null]", "[truefalse]", '["a""b"]', '"a" "b"')

# Numbers.
add("number", "-", "-0", "-1", "+1", "00", "01", "-01", "-00", "0.0", "0.", ".0", ".5", "-.5", "1.", "1.e1", "1.5", "1e5", "1E5", "1e+5", "1e-5",
    "1e", "1e+", "1E-", "1e5.5", "1e1e1", "0e0", "0e", "0x1", "1_000", "1,000", "1a", "--1", "1-", "- 1", "1 .5", "1.5.5",
    "1e400", "-1e400", "1e-400", "1" * 400, "0." + "1" * 5000, "1" * 4300, "-" + "1" * 4300, "1" * 4301, "-" + "1" * 4301, "1" * 5000 + ".0",
    "1" * 5000 + "e1", "[" + "9" * 4301 + "]", "1.7976931348623157e309", "123456789012345678901234567890", "\uff11", "1\u0661", "\u0661")
add("constant", "NaN", "Infinity", "-Infinity", "+Infinity", "-NaN", "nan", "NAN", "inf", "-inf", "Inf", "infinity", "Infinit", "-Infinit", "- Infinity",
    "NaN0", "[NaN,Infinity,-Infinity]", '{"a":NaN}', "{NaN:1}", "-I", "N", "I")

# Strings and escapes.
add("string", '"', '"a', '"\\', '"\\"', '"\\u', '"\\u0', '"\\u00e', '"\\u00e9', "\"\t\"", "\"\n\"", "\"\r\"", "\"\x00\"", "\"\x1f\"", "\"\x7f\"", "\"\x80\"",
    '"\u2028\u2029"', '"\\u2028"', '"\\b\\f\\n\\r\\t\\/\\\\\\""', '"\\a"', '"\\v"', '"\\0"', '"\\x41"', '"\\\'"', '"\\U0041"', '"\\u004G"', '"\\u+041"',
    '"\\u 041"', '"\\u0x41"', '"\\u00_1"', '"\\u\uff11111"', '"\\u0041"', '"\\u00Aa"', '"\\uABCD"', '"\\uabcd"', '"\\\n"', '"\\ "', '"\\\u00e9"',
    '"12345678\t"', '"1234567\n8"', '"abcdefgh\\x"', '"abcdefg\x01"', '"' + "a" * 31 + "\x1f" + '"', '"' + "a" * 64 + '"', '"' + "a" * 63 + '\\"')
add("surrogate", '"\\ud83d"', '"\\ude00"', '"\\ud83d\\ude00"', '"\\ude00\\ud83d"', '"\\ud83d\\ud83d\\ude00"', '"\\ud83dx"', '"\\ud83d\\n"', '"\\ud83d\\u0041"',
    '"\\ud83d\\uZZZZ"', '"\\ud83d\\u12"', '"\\udbff\\udfff"', '"\\ud800\\udc00"', '"\\ud83d\ude00"', b'"\xed\xa0\x80"', b'"\xed\xb0\x80"', b'"\xed\xa0\xbd\xed\xb8\x80"',
    b'"\xed\xbf\xbf"', b'"\xed\x9f\xbf"', b'"\xed\xa0"', b'"\xed\xa0x"', b'"\xed\xc0\x80"', b'"\xed\xa0\xff"')

# Encodings.
add("utf-8", '"\u00e9"', '"\u4f60\u597d"', '"\U0001f600"', b'"\xff"', b'"\xfe"', b'"\x80"', b'"\xc3"', b'"\xc3("', b'"\xc0\x80"', b'"\xc1\xbf"', b'"\xe0\x80\x80"',
    b'"\xe0\x9f\xbf"', b'"\xe2\x82"', b'"\xf0\x80\x80\x80"', b'"\xf0\x9f\x98"', b'"\xf4\x8f\xbf\xbf"', b'"\xf4\x90\x80\x80"', b'"\xf5\x80\x80\x80"', b'\xff', b'\x80{}', b'{}\xa0',
    b'{"\xff":1}', b'{"a":"' + b"x" * 40 + b'\xfe"}', b'{"a":"' + b"x" * 40 + b'","b":"\xc3\xa9"}', b'{\xc3\xa9:1}', b'[\xc3]', b'"\xef\xbf\xbe"', b'"\xef\xbb\xbf"')
add("bom", b"\xef\xbb\xbf{}", b'\xef\xbb\xbf{"model":"m","stream":true}', b"\xef\xbb\xbf\xef\xbb\xbf{}", b"\xef\xbb\xbf", b"\xef\xbb\xbf ", b"\xef\xbb{}", b" \xef\xbb\xbf{}",
    b'{}\xef\xbb\xbf', b'\xef\xbb\xbf[1]', b'\xef\xbb\xbf"\xff"')
for enc in ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"):
    add(enc, '{"model":"m"}'.encode(enc), "1".encode(enc), "[]".encode(enc), "{".encode(enc))
add("utf-16", b"\xff\xfe", b"\xfe\xff", b"\xfe\xff\x001", b"\xff\xfe1", b"\x00", b"1\x00", b"\x001", b"\x00\x00", b"1\x00\x00", b"\x00\x00\x00\x00", b"\x00\x001", b"1\x002\x00", b"1 \x00\x00")

# Nesting.
for n in (1, 2, 63, 64, 65, 126, 127, 128, 129, 130, 500, 900):
    add("depth", "[" * n + "]" * n, '{"a":' * n + "1" + "}" * n, "[" * n + "1" + "]" * n)
for n in (126, 127, 128):
    members("depth", '"messages":' + "[" * n + "]" * n, '"a":' + "[" * n + "]" * n + ',"model":"m"')
add("depth", "[" * 128 + "]" * 127, "[" * 127 + "]" * 128, "[" * 100000, '{"a":' * 100000, "[{" * 1000, "[[],[[]],[[[]]]]", "[" + "[]," * 300 + "[]]",
    '{"a":{"b":{}},"c":[{},{"d":[]}]}', "[[[]]", "[[]]]", "[{]}", "[[}]", '[{"a":[}]]', '{"a":[1,{"b":2]}')

# Members: names, duplicates, escapes in names.
members("name", '"model":"m"', '"Model":"m"', '"MODEL":"m"', '"model ":"m"', '" model":"m"', '"mod\\u0065l":"m"', '"\\u006d\\u006f\\u0064\\u0065\\u006c":"m"', '"\\u006D\\u006F\\u0064\\u0065\\u006C":"m"',
    '"model\\u0000":"m"', '"mo\\del":"m"', '"model\\n":"m"', '"":"m"', '"a":{"model":"inner"}', '"a":["model","x"],"model":"m"', '"model":"a","Model":"b"',
    '"a":"\\"model\\":\\"x\\"","model":"m"', '"messages":[{"role":"user","content":"{\\"model\\":\\"x\\",\\"stream\\":true}"}],"model":"m"', '"m\\u006fdel":"a","model":"b"',
    '"model":"b","m\\u006fdel":"a"', '"\ufeffmodel":"m"', '"m\u00f8del":"x","model":"m"')
members("duplicate", '"model":"a","model":"b"', '"model":"a","model":null', '"model":"a","model":5', '"model":null,"model":"b"', '"stream":true,"stream":false', '"stream":false,"stream":true',
    '"stream":true,"stream":null', '"stream_options":{"include_usage":true},"stream_options":{}', '"stream_options":{"include_usage":true},"stream_options":null',
    '"stream_options":{"include_usage":true,"include_usage":false}', '"stream_options":{"include_usage":false,"include_usage":true}', '"metadata":{"user_id":"a"},"metadata":{"x":1}',
    '"metadata":{"user_id":"a","user_id":"b"}', '"max_tokens":1,"max_tokens":2', '"max_tokens":1,"max_tokens":null', '"messages":[1,2,3],"messages":[1]', '"messages":[1,2,3],"messages":null',
    '"prompt":["a","b"],"prompt":"c"', '"prompt":"c","prompt":["a","b"]', '"user":"a","user":1', '"n":2,"n":"x"', '"input":["a","b"],"input":[]', '"a":1,"a":2,"a":3')
members("model", '"model":""', '"model":" "', '"model":"org/model-7b"', '"model":"a\\"b\\\\c"', '"model":"a\\nb"', '"model":"a\u2028b"', '"model":"a\\u2028b"', '"model":"\\ud800"',
    '"model":"\\ud83d\\ude00"', '"model":"\ud800"', '"model":1', '"model":true', '"model":[]', '"model":{}', '"model":["m"]', '"model":{"model":"x"}', '"model":"' + "m" * 65536 + '"',
    '"model":"' + "\\u006d" * 3000 + '"', '"model":"\\/\\b\\f\\n\\r\\t"', '"model":"caf\u00e9"', '"model":"caf\\u00e9"', ' "model" : "m" ', '\n"model"\t:\r"m"\n')

FLAG_VALUES = ["true", "false", "null", "1", "0", "-0", "1.0", "0.0", "-0.0", "1e0", "10e-1", "0e5", "2", "-1", "1.5", "0.1", "1e400", "NaN", "Infinity", "-Infinity", '"true"', '"True"', '"TRUE"',
    '"tRuE"', '"t"', '"T"', '"yes"', '"YES"', '"y"', '"on"', '"On"', '"1"', '"0"', '"false"', '"f"', '"no"', '"n"', '"N"', '"off"', '"OFF"', '""', '" true"', '"true "', '"1.0"', '"01"',
    '"tru\\u0065"', '"\\u0066\\u0061\\u006c\\u0073\\u0065"', '"\\u0074\\u0052\\u0055\\u0065"', '"enable"', '"truetruetruetruetruetruetruetruetrue"', '"\uff11"', '"o\u017f"', '"\u212a"', "[]", "{}", "[true]",
    "100000000000000000000", "1.0000000000000000001", "0.99999999999999999999", '"\\u0131"', '"ye\u017f"']
for v in FLAG_VALUES:
    members("flag", f'"stream":{v},"echo":{v},"store":{v},"background":{v}', f'"stream":true,"stream_options":{{"include_usage":{v}}}')
members("stream_options", '"stream_options":null', '"stream_options":true', '"stream_options":[]', '"stream_options":"x"', '"stream_options":{"x":{"include_usage":true}}',
    '"stream_options":{"include_us\\u0061ge":true}', '"stream_options":{"Include_Usage":true}', '"stream":true,"stream_options":{ "include_usage" : true , "b":[1,{}] }',
    '"stream_options":{"a":"include_usage","include_usage":true}', '"stream_options":{"\\u0069\\u006e\\u0063\\u006c\\u0075\\u0064\\u0065\\u005f\\u0075\\u0073\\u0061\\u0067\\u0065":1}')

NUMBERS = ["1", "256", "257", "0", "-1", "-0", "null", "true", "false", '"256"', "256.0", "2.56e2", "256.5", "1e3", "1e400", "NaN", "Infinity", "-Infinity", "2147483647", "2147483648", "9223372036854775808",
    "1" * 400, "[]", "[256]", "{}", "0.5", "1e-1", "999999999999999", "9999999999999999", "100e-2", "1E2"]
for v in NUMBERS:
    members("count", f'"max_tokens":{v}', f'"max_completion_tokens":{v},"max_tokens":7,"n":{v},"best_of":{v}')
members("count", '"max_output_tokens":9', '"max_output_tokens":9,"max_tokens":8', '"max_tokens":8,"max_completion_tokens":9', '"max_completion_tokens":null,"max_tokens":null,"max_output_tokens":3',
    '"max_completion_tokens":"x","max_tokens":3', '"max_token":3', '"Max_Tokens":3')

members("session", '"session_id":"s"', '"prompt_cache_key":"p"', '"user":"u"', '"metadata":{"user_id":"m"}', '"user":"u","metadata":{"user_id":"m"},"prompt_cache_key":"p","session_id":"s"',
    '"user":"u","metadata":{"user_id":"m"},"prompt_cache_key":"p"', '"user":"u","metadata":{"user_id":"m"}', '"user":"u","metadata":{}', '"user":"u","metadata":null', '"user":"u","metadata":"m"',
    '"user":"u","metadata":["user_id"]', '"session_id":5,"user":"u"', '"session_id":null,"user":"u"', '"session_id":"","user":"u"', '"session_id":["s"],"user":"u"', '"session_id":"a\\u0062c"', '"session_id":"\\ud83d"',
    '"session_id":"a\ud83db"', '"metadata":{"user_id":7},"user":"u"', '"metadata":{"a":{"user_id":"deep"},"user_id":"m"}', '"metadata":{"user\\u005fid":"m"}', '"metadata":{"user_id":"a\\tb"}',
    '"messages":[{"session_id":"x","user":"y"}]', '"messages":[{"role":"user","content":"session_id"}],"user":"\\"q\\""', '"metadata":{ "x" : [1,2,{"y":"}"}] , "user_id" : "m" }')
for v in ['"A"', '""', '["A","B"]', '["A"]', "[1,2,3]", "[[1,2],[3,4]]", "[[1,2]]", "[]", "[[]]", '["A",1]', '[1,"A"]', "null", "5", "{}", '[{"a":1},{"b":2}]', "[ ]", '[ "A" , "B" , "C" ]', "[null]", "[true]",
          '["a,b","c]"]', '[["a","b"],["c"]]', "[[1,[2,3]],[4]]", '[{"role":"user","content":"x"}]', '[{"type":"message","content":[1,2,3]},"x"]']:
    members("prompts", f'"prompt":{v}', f'"input":{v}', f'"messages":{v}', f'"prompt":{v},"input":["1","2","3","4"]')
members("other", '"previous_response_id":"resp_1","store":true,"background":true,"input":"x"', '"previous_response_id":null', '"previous_response_id":4', '"previous_response_id":"r\\u0031"',
    '"kv_transfer_params":{}', '"kv_transfer_params":null', '"kv_transfer_params":{"a":1}', '"kv_transfer_params":false', '"echo":true,"prompt":"x"', '"system":"s","tools":[],"instructions":"i","response_format":{"type":"text"}',
    '"system":[{"type":"text","text":"x"}],"tools":null', '"store":false,"background":false')

# Whole requests, then damaged ones: one byte changed, added or lost.
CHAT = ('{"messages": [{"role": "system", "content": "Be brief.\\n\\"Now\\""}, {"role": "user", "content": [{"type": "text", "text": "caf\u00e9 \\ud83d\\ude00"}]}], '
        '"model": "org/model-7b", "max_tokens": 256, "stream": true, "stream_options": {"include_usage": true}, "temperature": 0.7, "user": "u-1", "n": 2}')
TEXT = '{"model":"m","prompt":["one","two"],"max_tokens":16,"best_of":3,"echo":false,"logit_bias":{"50256":-100},"stop":["\\n\\n"],"seed":-1.5e3}'
RESP = '{"model":"m","input":[{"role":"user","content":"hi"}],"max_output_tokens":64,"store":true,"previous_response_id":"resp_9","metadata":{"user_id":"k"},"stream":false}'
add("request", CHAT, TEXT, RESP)
rng = random.Random(3)
ALPHABET = [bytes([c]) for c in b'{}[]",:\\ue0 1-.tnfINa/\n\t\x00\x1f\x7f\x80\xc3\xed\xa0\xff']
for text in (CHAT, TEXT, RESP):
    raw = text.encode()
    for _ in range(140):
        at, with_ = rng.randrange(len(raw)), rng.choice(ALPHABET)
        add("damaged", rng.choice([raw[:at] + with_ + raw[at + 1:], raw[:at] + with_ + raw[at:], raw[:at] + raw[at + 1:], raw[:at], raw[:at] + raw[at:at + 9] + raw[at:]]))


def depth(v):
    """How deep lists and dicts nest; without recursion."""
    deepest, todo = 0, [(v, 0)]
    while todo:
        x, d = todo.pop()
        if isinstance(x, (dict, list)):
            d += 1
            todo += [(y, d) for y in (x.values() if isinstance(x, dict) else x)]
        deepest = max(deepest, d)
    return deepest


def text(v):
    return base64.b64encode(v.encode("utf-8", "surrogatepass")).decode() if isinstance(v, str) else None


def flag(v):
    if v is None:
        return "absent"
    try:
        return "true" if FLAG.validate_python(v) else "false"
    except ValidationError:
        return "refused"


def count(v):
    """A whole number above 0, cut at 2^31-1, else None."""
    if isinstance(v, bool) or not isinstance(v, (int, float)) or v != v or v in (float("inf"), float("-inf")):
        return None
    return min(int(v), 2**31 - 1) if v >= 1 and v == int(v) else None


def prompts(o):
    v = o.get("prompt") if o.get("prompt") is not None else o.get("input")
    return len(v) if isinstance(v, list) and v and isinstance(v[0], (str, list)) else 1


def message_count(o):
    m, i = o.get("messages"), o.get("input")
    if m is not None:
        return len(m) if isinstance(m, list) else 0
    return len(i) if isinstance(i, list) and i and isinstance(i[0], dict) else 0


def session(o):
    meta = o.get("metadata")
    for v in (o.get("session_id"), o.get("prompt_cache_key"), meta.get("user_id") if isinstance(meta, dict) else None, o.get("user")):
        if isinstance(v, str) and v:
            return text(v)
    return None


def reading(o):
    options = o.get("stream_options")
    cap = None
    for k in ("max_completion_tokens", "max_tokens", "max_output_tokens"):
        if o.get(k) is not None:
            cap = count(o[k])
            break
    return {
        "model": text(o.get("model")), "stream": flag(o.get("stream")), "include_usage": flag(options.get("include_usage")) if isinstance(options, dict) else "absent",
        "cap": cap, "n": count(o.get("n")), "best_of": count(o.get("best_of")), "session": session(o), "prompts": prompts(o), "messages": message_count(o),
        "previous_response_id": text(o.get("previous_response_id")), "store": flag(o.get("store")), "background": flag(o.get("background")), "echo": flag(o.get("echo")),
        "kv_transfer": o.get("kv_transfer_params") is not None,
        "present": sorted(k for k in ("messages", "prompt", "input", "system", "tools", "instructions", "response_format", "model") if o.get(k) is not None),
    }


def judge(family, body):
    case = {"family": family, "body": base64.b64encode(body).decode()}
    # A body of one repeated piece is stored as the piece.
    for size in (1, 5, 2):
        if len(body) > 4000 and body == body[:size] * (len(body) // size):
            case = {"family": family, "body": base64.b64encode(body[:size]).decode(), "times": len(body) // size}
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as e:
        return case | {"accept": False, "why": type(e).__name__}
    case |= {"accept": True, "depth": depth(value), "object": isinstance(value, dict)}
    if isinstance(value, dict):
        case["reading"] = reading(value)
    return case


def main():
    import pydantic
    seen, out = set(), []
    for family, body in CASES:
        if body not in seen:
            seen.add(body)
            out.append(judge(family, body))
    print('{"python":"%s","pydantic":"%s","cases":[' % (sys.version.split()[0], pydantic.VERSION))
    print(",\n".join(json.dumps(c, separators=(",", ":")) for c in out))
    print("]}")


main()
