#!/usr/bin/env python3
"""A peer of the event publisher that is made of real libzmq. Prints one JSON line per message: its frames.

    zmqpeer.py sub ENDPOINT [--topic T]... [--bind] [--hold] [--hwm N] [--ping MS] [--brief] [--decode]
    zmqpeer.py dealer|req ENDPOINT [--ask HEX,HEX..]... [--hold] [--hwm N] [--brief]

sub receives until its standard input ends. dealer sends each --ask (frames in hex, separated by commas) and receives
likewise. With --hold nothing is received before a line comes in. --brief gives the SHA-256 of the last frame in place of
that frame, --decode what it means in MessagePack. Without pyzmq (or msgpack) the only line is {"missing": NAME}.
"""

import argparse
import hashlib
import json
import sys

try:
    import zmq
except ImportError:
    print(json.dumps({"missing": "pyzmq"}), flush=True)
    sys.exit(0)


def plain(v):
    if isinstance(v, bytes):
        return v.hex()
    if isinstance(v, (list, tuple)):
        return [plain(x) for x in v]
    if isinstance(v, dict):
        return {k: plain(x) for k, x in v.items()}
    return v


def main():
    p = argparse.ArgumentParser()
    p.add_argument("kind", choices=["sub", "dealer", "req"])
    p.add_argument("endpoint")
    p.add_argument("--topic", action="append")
    p.add_argument("--ask", action="append", default=[])
    p.add_argument("--bind", action="store_true")
    p.add_argument("--hold", action="store_true")
    p.add_argument("--brief", action="store_true")
    p.add_argument("--decode", action="store_true")
    p.add_argument("--hwm", type=int, default=0)
    p.add_argument("--ping", type=int, default=0)
    a = p.parse_args()
    if a.decode:
        try:
            import msgpack
        except ImportError:
            print(json.dumps({"missing": "msgpack"}), flush=True)
            return

    s = zmq.Context.instance().socket({"sub": zmq.SUB, "dealer": zmq.DEALER, "req": zmq.REQ}[a.kind])
    s.setsockopt(zmq.RCVHWM, a.hwm)
    s.setsockopt(zmq.LINGER, 0)
    if a.ping:
        s.setsockopt(zmq.HEARTBEAT_IVL, a.ping)
        s.setsockopt(zmq.HEARTBEAT_TIMEOUT, 3 * a.ping)
        s.setsockopt(zmq.HEARTBEAT_TTL, 3 * a.ping)
    for t in a.topic or ([""] if a.kind == "sub" else []):
        s.setsockopt(zmq.SUBSCRIBE, t.encode())
    if a.bind:
        s.bind(a.endpoint)
        print(json.dumps({"bound": s.getsockopt(zmq.LAST_ENDPOINT).decode()}), flush=True)
    else:
        s.connect(a.endpoint)
        print(json.dumps({"zmq": zmq.zmq_version()}), flush=True)
    for ask in a.ask:
        s.send_multipart([bytes.fromhex(f) for f in ask.split(",")])
    if a.hold:
        sys.stdin.readline()

    poller = zmq.Poller()
    poller.register(s, zmq.POLLIN)
    poller.register(0, zmq.POLLIN)
    while True:
        ready = dict(poller.poll())
        if s in ready:
            frames = s.recv_multipart()
            out = [f.hex() for f in frames]
            if a.brief:
                out[-1] = hashlib.sha256(frames[-1]).hexdigest()
            line = {"frames": out}
            if a.decode and frames[-1]:
                line["batch"] = plain(msgpack.unpackb(frames[-1], strict_map_key=False))
            print(json.dumps(line, separators=(",", ":")), flush=True)
        elif ready.get(0):
            return


main()
