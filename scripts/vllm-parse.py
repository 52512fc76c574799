#!/usr/bin/env python3
"""Read command lines for vLLM's server with the argument parser of the real one.

    echo '{"NAME": ["MODEL", "--flag=value"]}' | vllm-parse.py

Run it with the Python of .tools/vllm/venv (`make e2e-vllm` makes it). Prints a JSON object: for each name null, or what
is wrong. Nothing is loaded and no GPU is asked for, so flags for GPUs are read too. What the parser takes as an object
without looking inside is checked against the fields of vLLM's own class.
"""
import argparse
import dataclasses
import io
import json
import os
import sys
from contextlib import redirect_stderr

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

from vllm.config.speculative import SpeculativeConfig  # noqa: E402
from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args  # noqa: E402
from vllm.reasoning import ReasoningParserManager  # noqa: E402
from vllm.tool_parsers import ToolParserManager  # noqa: E402
from vllm.utils.argparse_utils import FlexibleArgumentParser  # noqa: E402


def complaint(parser, arguments):
    """What is wrong with one command line, or None."""
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            args = parser.parse_args(["serve", *arguments])
            validate_parsed_serve_args(args)
    except SystemExit:
        return said.getvalue().strip().splitlines()[-1]
    except (ValueError, TypeError, argparse.ArgumentError) as error:
        return str(error)
    fields = {f.name for f in dataclasses.fields(SpeculativeConfig)}
    for name in args.speculative_config or {}:
        if name not in fields:
            return f"speculative_config has no field {name}"
    if args.tool_call_parser and args.tool_call_parser not in ToolParserManager.list_registered():
        return f"no tool call parser {args.tool_call_parser}"
    if args.reasoning_parser and args.reasoning_parser not in ReasoningParserManager.list_registered():
        return f"no reasoning parser {args.reasoning_parser}"
    return None


def main():
    parser = FlexibleArgumentParser(prog="vllm")
    serve = parser.add_subparsers(dest="subparser").add_parser("serve")
    make_arg_parser(serve)
    lines = json.load(sys.stdin)
    out = sys.stdout
    sys.stdout = sys.stderr  # vLLM's modules may print
    result = {name: complaint(parser, arguments) for name, arguments in lines.items()}
    json.dump(result, out)


main()
