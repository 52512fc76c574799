#!/bin/sh
# Fetches the openai npm package, at one exact version, into an ignored folder. Does nothing without node and npm.
set -eu
cd "$(dirname "$0")/../e2e/sdk"
version=7.59.0
if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
	echo "node is not here: the openai npm package will not be tested"
	exit 0
fi
installed=$(sed -n 's/^  "version": "\(.*\)",$/\1/p' node_modules/openai/package.json 2>/dev/null || true)
[ "$installed" = "$version" ] && exit 0
npm install --silent --no-save --no-package-lock --no-audit --no-fund --prefix . "openai@$version"
