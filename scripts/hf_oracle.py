#!/usr/bin/env python3
"""Encode texts with Hugging Face's tokenizers library, for tokens/hf_test.go.

    python3 scripts/hf_oracle.py TOKENIZER_JSON

Standard input holds batches: a byte that says what is asked for, the number of texts, and for each its length and its
UTF-8. Standard output answers with a list for each text, its length first: the ids (0), the ids with the tokens that the
post-processor puts around (1), or the lengths in bytes of what the pre-tokenizer makes of the normalized text (2).
Numbers are little-endian with 32 bits. The first four bytes written are the version of this exchange, or 0 where the
library is missing.
"""
import array
import struct
import sys

VERSION = 1
SPECIAL, PIECES = 1, 2


def exactly(stream, n):
    data = stream.read(n)
    if len(data) != n:
        sys.exit("the input ends within a batch")
    return data


def pieces(tokenizer, text):
    if tokenizer.normalizer is not None:
        text = tokenizer.normalizer.normalize_str(text)
    # ByteLevel spells each byte as one character.
    return [len(piece) for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)]


def main():
    if sys.byteorder != "little":
        sys.exit("only little-endian machines")
    read, write = sys.stdin.buffer, sys.stdout.buffer
    try:
        from tokenizers import Tokenizer
    except ImportError:
        write.write(struct.pack("<I", 0))
        return
    tokenizer = Tokenizer.from_file(sys.argv[1])
    tokenizer.no_truncation()
    tokenizer.no_padding()
    write.write(struct.pack("<I", VERSION))
    write.flush()
    while head := read.read(5):
        mode, count = struct.unpack("<BI", head)
        texts = []
        for _ in range(count):
            (size,) = struct.unpack("<I", exactly(read, 4))
            texts.append(exactly(read, size).decode("utf-8"))
        if mode == PIECES:
            lists = (pieces(tokenizer, text) for text in texts)
        else:
            lists = (e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=mode == SPECIAL))
        for numbers in lists:
            numbers = array.array("I", numbers)
            write.write(struct.pack("<I", len(numbers)))
            write.write(numbers.tobytes())
        write.flush()


main()
