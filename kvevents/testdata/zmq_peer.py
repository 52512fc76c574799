"""An engine's event sockets on real libzmq, driven by lines on standard input.

    zmq_peer.py EVENTS REPLAY TOPIC [key=value ..]

EVENTS with `connect=1` is where the PUB connects to, else where it binds. Other keys: framing=3|4 (frames of a replay at
a DEALER), hwm=N (of the ROUTER), beat=MS (heartbeats of our own, which the peer must answer).

    pub HEX        publish a batch, and keep it in the ring
    lose HEX       keep it in the ring without publishing
    fill N HEX     publish a batch N times, each with its own time stamp (bytes 2 to 10, as in [ts, events, rank])
    topic NAME     publish under another topic from here on
    ring N         leave the newest N batches in the ring
Each line is answered by `ok SEQ`, the next sequence number. The script ends with its input.
"""

import struct
import sys
import threading
import time

try:
    import zmq
except ImportError:
    print("no pyzmq", flush=True)
    sys.exit(0)

events, replay, topic = sys.argv[1], sys.argv[2], sys.argv[3].encode()
options = dict(a.split("=", 1) for a in sys.argv[4:])
context = zmq.Context()
pub = context.socket(zmq.PUB)
pub.setsockopt(zmq.SNDHWM, 100_000)
pub.setsockopt(zmq.LINGER, 0)
if "beat" in options:
    pub.setsockopt(zmq.HEARTBEAT_IVL, int(options["beat"]))
    pub.setsockopt(zmq.HEARTBEAT_TIMEOUT, 3 * int(options["beat"]))
(pub.connect if "connect" in options else pub.bind)(events)
router = context.socket(zmq.ROUTER)
router.setsockopt(zmq.LINGER, 0)
if "hwm" in options:
    router.setsockopt(zmq.SNDHWM, int(options["hwm"]))
router.bind(replay)

lines, ready = [], threading.Event()


def read():
    for line in sys.stdin:
        lines.append(line.split())
        ready.set()
    lines.append(["quit"])


threading.Thread(target=read, daemon=True).start()
print("ready", zmq.zmq_version(), flush=True)

ring, first, seq = [], 0, 0


def emit(payload, lost=False):
    global seq
    if not lost:
        pub.send_multipart([topic, seq.to_bytes(8, "big"), payload])
    ring.append(payload)
    seq += 1


def serve():
    frames = router.recv_multipart()
    if len(frames) != 3:
        return
    client, start = frames[0], int.from_bytes(frames[2], "big")
    mid = [topic] if options.get("framing", "4") == "4" else []
    for i in range(max(start - first, 0), len(ring)):
        router.send_multipart([client, b"", *mid, (first + i).to_bytes(8, "big"), ring[i]])
    router.send_multipart([client, b"", *([b""] if mid else []), b"\xff" * 8, b""])


while True:
    while router.poll(0 if lines else 5):
        serve()
    if not lines:
        continue
    command, *args = lines.pop(0)
    if command == "quit":
        break
    if command == "pub":
        emit(bytes.fromhex(args[0]))
    elif command == "lose":
        emit(bytes.fromhex(args[0]), lost=True)
    elif command == "fill":
        payload = bytes.fromhex(args[1])
        for i in range(int(args[0])):
            emit(payload[:2] + struct.pack(">d", time.time() + i * 1e-6) + payload[10:])
    elif command == "topic":
        topic = args[0].encode() if args else b""
    elif command == "ring":
        keep = int(args[0])
        first += len(ring) - keep
        ring = ring[len(ring) - keep :]
    print("ok", seq, flush=True)
