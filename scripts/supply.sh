#!/bin/sh
# What the binary is made of, proven: the modules are those of go.sum, two builds at different places are equal to the
# bit, its bill of materials, and what is known of its modules' faults.
#
#   supply.sh quick      verify, and build twice at different places with one cache
#   supply.sh            verify, reproduce, and look for vulnerabilities where their database can be reached
#   supply.sh sbom FILE  write the bill of materials (CycloneDX, JSON) of a release build
set -eu
cd "$(dirname "$0")/.."
GO=${GO:-go}
tools=$PWD/.tools
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

# The tools are built once from a module of their own, at the versions of its go.mod.
tool() {
	[ "$tools/$1" -nt tools/supply/go.mod ] && return
	mkdir -p "$tools"
	(cd tools/supply && "$GO" build -o "$tools/$1" "$2")
}

# build FOLDER BINARY: as the Dockerfile does, without the state of a checkout in it.
build() {
	(cd "$1" && CGO_ENABLED=0 GOFLAGS= "$GO" build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=${VERSION:-dev}" -o "$2" .)
}

if [ "${1:-}" = sbom ]; then
	[ $# = 2 ] || {
		echo "usage: supply.sh sbom FILE"
		exit 2
	}
	tool cyclonedx-gomod github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod
	build . "$work/ramjet"
	"$tools/cyclonedx-gomod" bin -json -licenses -noserial -notimestamp -version "${VERSION:-dev}" -output "$2" "$work/ramjet" 2>"$work/said" || {
		cat "$work/said"
		exit 1
	}
	echo "ok    sbom: $2, $(grep -c '"bom-ref"' "$2") components"
	exit 0
fi

"$GO" mod verify >"$work/said" 2>&1 || {
	cat "$work/said"
	echo "FAIL  supply: a module is not what go.sum says"
	exit 1
}
echo "ok    supply: $("$GO" list -m all | wc -l) modules are those of go.sum"

# The second build stands at another path and knows nothing of the first: its cache is empty, but for the quick form.
cache=$work/cache
[ "${1:-}" != quick ] || cache=$("$GO" env GOCACHE)
mkdir "$work/copy"
tar -cf - --exclude='./.*' --exclude=./ramjet --exclude=node_modules . | tar -xf - -C "$work/copy"
build . "$work/one"
GOCACHE=$cache build "$work/copy" "$work/two"
one=$(sha256sum <"$work/one")
two=$(sha256sum <"$work/two")
[ "$one" = "$two" ] || {
	echo "FAIL  supply: two builds of one source differ: $one and $two"
	exit 1
}
echo "ok    supply: two builds are equal, sha256 ${one%% *}"

[ "${1:-}" != quick ] || exit 0
tool govulncheck golang.org/x/vuln/cmd/govulncheck
code=0
"$tools/govulncheck" . >"$work/said" 2>&1 || code=$?
if grep -q 'fetching vulnerabilities' "$work/said"; then
	echo "skip  supply: the vulnerability database (https://vuln.go.dev) cannot be reached from here"
elif [ "$code" != 0 ]; then
	cat "$work/said"
	echo "FAIL  supply: govulncheck"
	exit 1
else
	echo "ok    supply: govulncheck knows of no vulnerability that is called"
fi
