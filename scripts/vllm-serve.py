#!/usr/bin/env python3
"""Start one real vLLM server on a CPU and stay with it until it is to end.

    vllm-serve.py MODEL --port 8101 [--events 5601 --replay 5602] [--blocks N] [-- ARGUMENTS FOR vLLM]

Run it with the Python of .tools/vllm/venv (`make e2e-vllm` makes it). The first line on standard output is
`pid N`, the API server's process; nothing else is printed there: whether it is healthy is for the caller to ask
(GET /health). The server ends, with all its processes, on SIGTERM, on SIGINT and, with --until-eof, when standard
input ends: so it cannot outlive a test that holds the other end of that pipe, however the test ended. The exit code is
0 when it was told to end, else 1.
"""
import argparse
import json
import os
import select
import signal
import subprocess
import sys
import time


def arguments():
    argv, extra = sys.argv[1:], []
    if "--" in argv:
        argv, extra = argv[: argv.index("--")], argv[argv.index("--") + 1 :]
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("--port", type=int, required=True)
    p.add_argument("--name", default="tiny", help="model name in requests (default %(default)s)")
    p.add_argument("--events", type=int, default=0, help="port for KV events; without it there are none")
    p.add_argument("--replay", type=int, default=0, help="port for their replay")
    p.add_argument("--topic", default="kv")
    p.add_argument("--block-size", type=int, default=32, help="tokens, a multiple of 32 on a CPU (default %(default)s)")
    p.add_argument("--blocks", type=int, default=0, help="KV cache in blocks; default: 1 GiB of them")
    p.add_argument("--context", type=int, default=16384, help="longest prompt and answer in tokens (default %(default)s)")
    p.add_argument("--until-eof", action="store_true")
    return p.parse_args(argv), extra


def command(a, extra):
    # The command `vllm` of this wheel does not start: it asks for the version of a package named vllm.
    cmd = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", a.model, "--served-model-name", a.name]
    cmd += ["--host", "127.0.0.1", "--port", str(a.port), "--dtype", "bfloat16", "--enforce-eager"]
    cmd += ["--block-size", str(a.block_size), "--max-model-len", str(a.context)]
    cmd += ["--enable-prefix-caching", "--enable-prompt-tokens-details"]
    if a.blocks:
        cmd += ["--num-gpu-blocks-override", str(a.blocks)]
    if a.events:
        events = {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            # Only with a * (or ipc://) does the publisher bind; 127.0.0.1 would make it connect out. Replay always binds.
            "endpoint": f"tcp://*:{a.events}",
            "replay_endpoint": f"tcp://127.0.0.1:{a.replay or a.events + 1}",
            "topic": a.topic,
        }
        cmd += ["--kv-events-config", json.dumps(events)]
    return cmd + extra


def environment():
    return {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
        # One thread each, bound to no core: several servers share a small machine with the tests.
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "TOKENIZERS_PARALLELISM": "false",
    }


def stop(server, grace=15):
    """End the server and its workers. After a SIGKILL of the server alone they would live on and keep their ports."""
    if server.poll() is None:
        server.terminate()
        try:
            server.wait(grace)
        except subprocess.TimeoutExpired:
            pass
    try:
        os.killpg(server.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    server.wait()


def main():
    a, extra = arguments()
    told = []
    for s in (signal.SIGTERM, signal.SIGINT):
        signal.signal(s, lambda *_: told.append(True))
    server = subprocess.Popen(
        command(a, extra), env=environment(), stdin=subprocess.DEVNULL, stdout=sys.stderr, start_new_session=True
    )
    try:
        print("pid", server.pid, flush=True)
        while not told and server.poll() is None:
            if not a.until_eof:
                time.sleep(0.2)
            elif select.select([sys.stdin], [], [], 0.2)[0] and not os.read(0, 4096):
                told.append(True)
    finally:
        stop(server)
    return 0 if told else 1


if __name__ == "__main__":
    sys.exit(main())
