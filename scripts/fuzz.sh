#!/bin/sh
# Runs every fuzz target of every package for FUZZTIME, two at a time, each in one process: fuzz.sh FUZZTIME [PATTERN of packages]
#
# Making each input that reached something new as small as may be takes Go's fuzzer a minute by itself: it gets a second.
#
# Go's fuzzer sometimes calls the end of its time a failure ("context deadline exceeded", without an input): that is no
# finding. One that is leaves its input under testdata/fuzz.
set -eu
cd "$(dirname "$0")/.."
GO=${GO:-go}
export GO
said=$(mktemp -d)
trap 'rm -rf "$said"' EXIT INT TERM

# Inputs found interesting are kept where go test keeps them, for the next run.
corpora=$("$GO" env GOCACHE)/fuzz

# one BINARY PACKAGE TARGET TIME SAID CORPORA: prints the target's line, and all it said if it found something.
one='
code=0
(cd "$2" && "$1" -test.run "^\$" -test.fuzz "^$3\$" -test.fuzztime "$4" -test.parallel 1 -test.fuzzminimizetime 1s -test.fuzzcachedir "$6") >"$1.$3" 2>&1 || code=$?
if [ "$code" != 0 ] && grep -q "^ *context deadline exceeded" "$1.$3" && ! grep -q "Failing input written" "$1.$3"; then
	code=0
fi
if [ "$code" = 0 ]; then
	echo "ok    $2 $3 $(grep -o "execs: [0-9]*" "$1.$3" | tail -1)"
else
	cat "$1.$3"
	echo "FAIL  $2 $3"
	exit 1
fi
'
for package in $(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u | grep "${2:-.}"); do
	# An instrumented binary for each package, so that its targets do not build it again.
	binary="$said/$(echo "$package" | tr -c 'a-z0-9\n' _).test"
	"$GO" test -c -fuzz . -o "$binary" "$package" || { echo "FAIL  $package does not build" >&2; : >"$said/broken"; continue; }
	for target in $(grep -rhoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' "$package"/*_test.go | cut -d' ' -f2 | sort -u); do
		printf '%s\0%s\0%s\0%s\0%s\0%s\0' "$binary" "$package" "$target" "$1" "$said" "$corpora/$("$GO" list "$package")"
	done
done >"$said/targets"
code=0
xargs -0 -r -n 6 -P 2 sh -c "$one" one <"$said/targets" || code=1
[ ! -e "$said/broken" ] || code=1
exit "$code"
