#!/usr/bin/env bash
# Runs promtool, or with --prometheus Prometheus itself, from the system or else from Debian's package `prometheus`, which
# is unpacked into .tools/prometheus: nothing is installed, no daemon starts, no root is needed where apt knows the package.
#
#   scripts/promtool.sh check rules deploy/prometheus/ramjet.rules.yml
#   scripts/promtool.sh --prometheus --config.file=..
#   scripts/promtool.sh --path              print the folder that holds both
#
# Exit code 69 and one line where there is neither.
set -euo pipefail
cd "$(dirname "$0")/.."

into=.tools/prometheus

missing() {
	echo "promtool is missing: apt-get install prometheus, or put promtool and prometheus of https://prometheus.io/download/ on the PATH ($1)" >&2
	exit 69
}

unpack() {
	command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || missing "this system has no apt to get them with"
	local work
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	chmod 755 "$work"
	local log=$work/log
	if ! (cd "$work" && apt-get download prometheus) >"$log" 2>&1; then
		# A fresh machine has no package lists; only root may fetch them.
		[[ $(id -u) = 0 ]] || missing "apt-get cannot download the package prometheus: $(tail -1 "$log")"
		apt-get update >"$log" 2>&1 && (cd "$work" && apt-get download prometheus) >>"$log" 2>&1 ||
			missing "apt-get cannot download the package prometheus: $(tail -1 "$log")"
	fi
	rm -rf "$into.new"
	mkdir -p "$into.new"
	dpkg-deb --fsys-tarfile "$work"/prometheus_*.deb | tar -x -C "$into.new" --strip-components=3 ./usr/bin/promtool ./usr/bin/prometheus
	rm -rf "$into"
	mv "$into.new" "$into"
	rm -rf "$work"
	trap - EXIT
}

if system=$(command -v promtool) && command -v prometheus >/dev/null; then
	folder=$(dirname "$system")
else
	[[ -x $into/promtool && -x $into/prometheus ]] || unpack
	folder=$into
fi
case ${1-} in
--path) cd "$folder" && pwd ;;
--prometheus) shift && exec "$folder/prometheus" "$@" ;;
*) exec "$folder/promtool" "$@" ;;
esac
