#!/usr/bin/env python3
"""Write bpe_golden.json: texts and the ids that Hugging Face's tokenizers library gives them.

    pip install tokenizers==0.23.3
    python3 tokens/testdata/make_golden.py sim/model/tokenizer.json [COUNT] > tokens/testdata/bpe_golden.json

COUNT is the number of random texts (default 300); bpe_test.go also accepts a larger file by RAMJET_BPE_GOLDEN.
"""
import json
import random
import sys

from tokenizers import Tokenizer

HAND = [
    "", " ", "  ", "\n", "\r\n", "\n\n \n", " \n x", "x \n", "x  \n\n  y", "\t\tx", "\tx y", "a  b", "a   b", "a\u00a0b", "a \u3000 b", "\u2028x",
    "Hello world", "Hello, world!", "don't DON'T Don'T we'll WE'LL they've I'm i'd 'tis 's ''s '\u017f it'\u017f 'r 'l 'v 're're", "'", "'x", " 's",
    "x=1234567", "3.14159e-10", "\u0661\u0662\u0663", "\u2160\u2161", "\u00bd cup", "a1b2", "if (x != nil) {\n\treturn fmt.Errorf(\"%w\", err)\n}\n", "!!!???...\n\n", "...\r\nx", " ...x", "  ...x", "(foo", " (foo)", "_foo", "-foo-bar",
    "e\u0301clair", "\u1112\u1161\u11ab\uae00", "\ufb01sh", "A\u030angstrom", "\u212b", "\u0958", "q\u0307\u0323", "\u0344",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002", "\u3053\u3093\u306b\u3061\u306f", "\u041f\u0440\u0438\u0432\u0435\u0442", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", "\u0928\u092e\u0938\u094d\u0924\u0947", "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467", "\u200b\u200c\ufeff", "\x00\x01\x1f\x7f\x80\x85\xa0\xad",
    "<|im_start|>user\nhi<|im_end|>\n", "<|im_start|><|im_start|>", "<|im_star", "<|im_end|", "<<|im_end|>>", "x<think>y</think>z", "<tool_call>\n{}\n</tool_call>", "<|endoftext|>", "e<|im_end|>\u0301", "<|IM_END|>",
    "a" * 95, "a" * 96, "a" * 97, "the" * 100, "-" * 300, " " * 300 + "x", "=" * 200 + "\n", "abcdefghijklmnopqrstuvwxyz" * 20, "\u4e2d\u6587" * 90, "supercalifragilisticexpialidocious" * 4, "ab" * 33 + "\u0301" * 5,
]

PARTS = ["the", " request", " handler", "'s", "'LL", " ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", ".", ",", "!?", "-", "_", "(", ")", "{", "}", "\"", "'", "0", "7", "42", "\u0663", "\u00bd", "A", "z", "\u00e9", "e\u0301", "\u017f", "\u4e2d", "\u6587", "\u1112\u1161", "\u0915\u094d", "\U0001f600", "\u200d", "\u0301", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<", "|", ">", "http", "://", "www", "JSON", "nil", " func", "return"]


def random_text(r):
    kind = r.randrange(4)
    if kind == 0:
        return "".join(r.choice(PARTS) for _ in range(r.randrange(1, 40)))
    if kind == 1:
        return "".join(chr(r.randrange(0x20, 0x7f)) for _ in range(r.randrange(1, 120)))
    if kind == 2:
        return "".join(r.choice(" \n\t\r\u00a0x.'1") for _ in range(r.randrange(1, 40)))
    low, high = r.choice([(0x80, 0x250), (0x300, 0x590), (0x620, 0x700), (0x900, 0xe80), (0x1100, 0x1200), (0x2000, 0x2c00), (0x3000, 0x3400), (0x4e00, 0xa000), (0xac00, 0xd7a0), (0x1f300, 0x1fa00)])
    return "".join(r.choice(PARTS) if r.random() < 0.3 else chr(r.randrange(low, high)) for _ in range(r.randrange(1, 60)))


def main():
    tok = Tokenizer.from_file(sys.argv[1])
    r = random.Random(1)
    texts = HAND + [random_text(r) for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 300)]
    print("[")
    for i, text in enumerate(texts):
        ids = tok.encode(text, add_special_tokens=False).ids
        row = {"text": text, "ids": ids, "decoded": tok.decode(ids, skip_special_tokens=False)}
        if row["decoded"] == text:
            del row["decoded"]
        print(" " + json.dumps(row, separators=(",", ":")) + ("," if i + 1 < len(texts) else ""))
    print("]")


main()
