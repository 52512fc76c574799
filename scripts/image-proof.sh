#!/bin/sh
# Proves the steps of the Dockerfile one by one where no container engine runs: the binary builds from the image's
# context, is static, and serves and answers its own health check as uid 65532 in a root that holds nothing else and
# cannot be written to.
set -eu
cd "$(dirname "$0")/.."

skip() {
	echo "skip  image-proof: $1"
	exit 0
}
[ "$(uname -s)" = Linux ] || skip "chroot needs Linux"
[ "$(id -u)" = 0 ] || skip "chroot needs root"

root=$(mktemp -d)
engine= proxy=
cleanup() {
	[ -z "$proxy" ] || kill "$proxy" 2>/dev/null || true
	[ -z "$engine" ] || kill "$engine" 2>/dev/null || true
	wait 2>/dev/null || true
	rm -rf "$root" "$root".*
}
trap cleanup EXIT INT TERM

# Step 1: the binary is built as the Dockerfile builds it, from what .dockerignore leaves of the sources.
"${PYTHON:-python3}" - "$root.context" <<'EOF'
import fnmatch, os, shutil, sys
patterns = [line.strip() for line in open(".dockerignore") if line.strip() and not line.startswith("#")]
def ignored(path):
    for pattern in patterns:
        whole, name = path, os.path.basename(path)
        if pattern.startswith("**/") and fnmatch.fnmatch(name, pattern[3:]) or "/" not in whole and fnmatch.fnmatch(whole, pattern):
            return True
    return False
for folder, folders, files in os.walk("."):
    here = os.path.relpath(folder, ".")
    inside = lambda name: name if here == "." else f"{here}/{name}"
    folders[:] = [name for name in folders if not ignored(inside(name))]
    target = os.path.join(sys.argv[1], here)
    os.makedirs(target, exist_ok=True)
    for name in files:
        if not ignored(inside(name)):
            shutil.copy(os.path.join(folder, name), os.path.join(target, name))
EOF
(cd "$root.context" && CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=proof" -o "$root.binary" .)
binary=$root.binary
[ "$("$binary" version | cut -d' ' -f2)" = proof ] || {
	echo "FAIL  image-proof: the version was not linked in"
	exit 1
}
echo "ok    image-proof: builds from the image's context"

# Step 2: the binary is static. The loader's segment is what a dynamic one has.
"${PYTHON:-python3}" - "$binary" <<'EOF'
import struct, sys
elf = open(sys.argv[1], "rb").read()
if elf[:4] != b"\x7fELF":
    sys.exit("image-proof: not an ELF binary")
offset, = struct.unpack_from("<Q", elf, 32)
size, count = struct.unpack_from("<HH", elf, 54)
if any(struct.unpack_from("<I", elf, offset + i * size)[0] == 3 for i in range(count)):
    sys.exit("image-proof: the binary asks for a loader; build it with CGO_ENABLED=0")
EOF
echo "ok    image-proof: the binary is static"

# Step 3: a root folder with the binary and nothing else, not writable for its user.
cp "$binary" "$root/ramjet"
chmod 755 "$root"
chmod 555 "$root/ramjet"
# The new root holds no env, so the environment is set outside of it. exec makes the process in the background be ramjet
# itself and not a shell around it.
inside() {
	exec env -i RAMJET_ADMIN_LISTEN="$admin" "$(command -v chroot)" --userspec=65532:65532 "$root" /ramjet "$@"
}

free_port() {
	"${PYTHON:-python3}" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}
engine_port=$(free_port)
public_port=$(free_port)
admin_port=$(free_port)
admin=0.0.0.0:$admin_port

# Step 4: it serves from there, in front of an engine that is the same binary.
inside sim --listen "127.0.0.1:$engine_port" >"$root.engine" 2>&1 &
engine=$!
inside --listen "127.0.0.1:$public_port" --engine "a=http://127.0.0.1:$engine_port" >"$root.proxy" 2>&1 &
proxy=$!

# Step 5: the image's health check, then an answer through it.
healthy=no
for _ in $(seq 100); do
	if (inside health) >/dev/null 2>&1; then
		healthy=yes
		break
	fi
	sleep 0.1
done
if [ "$healthy" = no ]; then
	echo "FAIL  image-proof: ramjet health did not become 0 within 10 s"
	cat "$root.proxy"
	exit 1
fi
echo "ok    image-proof: serves as uid 65532 in an empty root; ramjet health exits 0"
"${PYTHON:-python3}" - "$public_port" "$admin_port" "$proxy" <<'EOF'
import json, sys, time, urllib.error, urllib.request
public, admin, pid = sys.argv[1:]
body = json.dumps({"messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}).encode()
for attempt in range(100):
    try:
        request = urllib.request.Request(f"http://127.0.0.1:{public}/v1/chat/completions", body, {"Content-Type": "application/json"})
        answer = json.load(urllib.request.urlopen(request, timeout=10))
        break
    except urllib.error.URLError as error:
        if attempt == 99:
            sys.exit(f"image-proof: no answer: {error}")
        time.sleep(0.1)
assert answer["usage"]["completion_tokens"] == 3, answer
status = open(f"/proc/{pid}/status").read()
uid = next(line for line in status.splitlines() if line.startswith("Uid:")).split()[1:]
assert uid == ["65532"] * 4, uid
# Off loopback and without a token, what changes something is refused.
try:
    urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{admin}/api/v1/engines/a/drain", b"", method="POST"))
    sys.exit("image-proof: a mutation without a token was admitted on 0.0.0.0")
except urllib.error.HTTPError as error:
    assert error.code == 403, error.code
EOF
echo "ok    image-proof: answers a request, runs as 65532, refuses mutations off loopback without a token"

# Step 6: it stops at a signal with exit code 0, and has written nothing.
kill -TERM "$proxy"
code=0
wait "$proxy" || code=$?
proxy=
[ "$code" = 0 ] || {
	echo "FAIL  image-proof: exit code $code after SIGTERM"
	cat "$root.proxy"
	exit 1
}
left=$(cd "$root" && find . -mindepth 1 ! -name ramjet)
[ -z "$left" ] || {
	echo "FAIL  image-proof: written into the root: $left"
	exit 1
}
echo "ok    image-proof: stops at SIGTERM with 0; nothing was written"
