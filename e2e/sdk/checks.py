"""What the SDK checks share: the setup under test, and a runner that prints a line a check."""

import asyncio
import inspect
import json
import os
import sys
import time
import traceback
import urllib.request

RAMJET = os.environ["RAMJET_URL"]
ADMIN = os.environ["RAMJET_ADMIN"]
SIMS = {"a": os.environ["SIM_A"], "b": os.environ["SIM_B"]}
MODEL = "sim"
PATIENCE = 10.0  # seconds, for what takes milliseconds

_checks = []


def check(function):
    """Register a function, plain or async, as a check. Its name is the check's."""
    _checks.append(function)
    return function


def main():
    """Run all checks in order, each on engines without faults."""
    failed = False
    for function in _checks:
        clear()
        began = time.monotonic()
        try:
            if inspect.iscoroutinefunction(function):
                asyncio.run(function())
            else:
                function()
            at_rest()
        except Exception:  # noqa: BLE001 - a check may fail in any way
            failed = True
            print(f"FAIL {function.__name__}")
            print("".join("    " + line + "\n" for line in traceback.format_exc().splitlines()), end="")
        else:
            print(f"PASS {function.__name__}: {time.monotonic() - began:.1f} s", flush=True)
    sys.exit(failed)


def fetch(url, body=None):
    """GET, or POST of a JSON body."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.load(answer)


def state(name):
    """The simulator's own view of itself."""
    return fetch(SIMS[name] + "/sim/state")


def total(field):
    """The sum of a field of both engines' states."""
    return sum(state(name)[field] for name in SIMS)


def fault(**kind):
    """Script a fault on both engines."""
    for url in SIMS.values():
        fetch(url + "/sim/fault", kind)


def clear():
    for url in SIMS.values():
        fetch(url + "/sim/clear", {})


def until(what, condition):
    """Wait for something that takes milliseconds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {PATIENCE} s")
        time.sleep(0.01)


def leases():
    """What Ramjet's leases add up to: requests and tokens."""
    with urllib.request.urlopen(ADMIN + "/metrics", timeout=PATIENCE) as answer:
        text = answer.read().decode()
    values = [float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(("ramjet_leases{", "ramjet_lease_tokens{"))]
    assert len(values) == 6, f"two phases and the tokens of two engines, got {len(values)} lines"
    return sum(values)


def at_rest():
    """After every check: no engine works, and Ramjet's books are empty."""
    until("the engines' in_flight back to 0", lambda: total("in_flight") == 0)
    until("leases back to 0", lambda: leases() == 0)


def same(got, want, what):
    if got != want:
        raise AssertionError(f"{what}: got {got!r}, want {want!r}")
