#!/bin/sh
# Runs every fuzz target of every package, one after another, each for FUZZTIME: fuzz.sh FUZZTIME [PATTERN of packages]
#
# Go's fuzzer sometimes calls the end of its time a failure ("context deadline exceeded", without an input): that is no
# finding. One that is leaves its input under testdata/fuzz.
set -eu
cd "$(dirname "$0")/.."
GO=${GO:-go}
said=$(mktemp)
trap 'rm -f "$said"' EXIT INT TERM
failed=0
for package in $(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u | grep "${2:-.}"); do
	for target in $("$GO" test -list '^Fuzz' "$package" | grep '^Fuzz'); do
		code=0
		"$GO" test -run '^$' -fuzz "^$target\$" -fuzztime "$1" "$package" >"$said" 2>&1 || code=$?
		if [ "$code" != 0 ] && grep -q '^ *context deadline exceeded' "$said" && ! grep -q 'Failing input written' "$said"; then
			code=0
		fi
		if [ "$code" = 0 ]; then
			echo "ok    $package $target $(grep -o 'execs: [0-9]*' "$said" | tail -1)"
		else
			cat "$said"
			echo "FAIL  $package $target"
			failed=1
		fi
	done
done
exit $failed
