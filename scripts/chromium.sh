#!/bin/sh
# Install Chromium for the tests of the operator's page where it is missing and this system lets us: Debian and its kin,
# as root. Elsewhere the tests skip, and this says in one line how to get it.
set -eu
for name in "${CHROMIUM:-}" chromium chromium-browser google-chrome google-chrome-stable; do
	if [ -n "$name" ] && command -v "$name" >/dev/null; then
		exit 0
	fi
done
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "skip  the page's tests: chromium is missing (apt-get install chromium, or set CHROMIUM to a Chromium or Chrome)"
	exit 0
fi
echo "installing chromium (once)"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# The lists of a fresh machine are empty, or name versions that are gone.
if ! { apt-get install -y --no-install-recommends chromium fonts-dejavu-core fonts-liberation ||
	{ apt-get update && apt-get install -y --no-install-recommends chromium fonts-dejavu-core fonts-liberation; }; } >"$log" 2>&1; then
	tail -n 3 "$log"
	echo "skip  the page's tests: chromium cannot be installed (apt-get install chromium)"
fi
