#!/usr/bin/env python3
"""Run `go test -json` and show what a person wants to see of it.

    gotest.py [--log FILE] ARGS..   run `go test ARGS`: one line a package, the whole output of what failed
    gotest.py --log FILE --total    what all runs since the file was emptied came to: tests skipped with their reason,
                                    tests failed with their words

A few tests that failed are run once more, alone: whole processes on a machine that others use too miss a time limit
now and then. One that passes then is called unsteady, with the words of its failure, here and in the summary. So is
a package, run whole, whose process the race detector ended because an assertion of its own did not hold: that says
nothing about the code under it. Never run again are data races, crashes (of a process that a test started, too),
packages that did not build, died or ran out of time, chaos, whose next run would be another one, and more than AGAIN
tests of one run.

The exit code is that of the tests. The standard library is all it needs.
"""

import json
import subprocess
import sys
import time

AGAIN = 3  # tests, or packages that the race detector ended, of one run that may be run once more
DETECTOR = "ThreadSanitizer: CHECK failed"  # the words of sanitizer_termination.cpp in compiler-rt
CRASH = ("DATA RACE", "race detected", "panic: ", "fatal error:", "ramjet printed ")


class Package:
    """One package of one run."""

    def __init__(self, name):
        self.name = name
        self.passed = self.failed = 0
        self.skipped = []
        self.failures = []  # (test, the words it left), of tests that failed, and of the package when no test did
        self.output = {}  # by test; "" = the package's own
        self.running = set()
        self.crashed = self.detector = False

    def take(self, event):
        action, test = event["Action"], event.get("Test", "")
        if test and action == "run":
            self.running.add(test)
        if test and action in ("pass", "fail", "skip"):
            self.running.discard(test)
        if action == "output":
            self.crashed = self.crashed or any(word in event["Output"] for word in CRASH)
            self.detector = self.detector or event["Output"].startswith(DETECTOR)
            self.output.setdefault(test, []).append(event["Output"])
        elif test and action == "pass":
            self.passed += 1
            self.output.pop(test, None)
        elif test and action == "fail":
            self.failed += 1
            self.failures.append((test, words(self.output.get(test, []))))
        elif test and action == "skip":
            self.skipped.append((test, reason(self.output.pop(test, []))))
        return not test and action in ("pass", "fail", "skip")

    def final(self):
        """Report whether the package's failure cannot be the machine's: only tests that ended by themselves may be."""
        if self.detector and not self.crashed and not self.failed:
            return False
        ended = {test for test, text in self.failures if f"--- FAIL: {test} " in text}
        return self.crashed or bool(self.running) or len(ended) < max(len(self.failures), 1) or self.name.endswith("/e2e/chaos")

    def show(self, event):
        """Print the package's end and return whether it failed."""
        action, took = event["Action"], event.get("Elapsed", 0)
        tests = self.passed + self.failed
        if action != "fail":
            if tests + len(self.skipped):
                note = f", {len(self.skipped)} skipped" if self.skipped else ""
                print(f"ok    {self.name:32} {took:7.2f}s  {tests} tests{note}", flush=True)
            return False
        # It did not build, or it died in the midst of a test.
        ended = {test for test, _ in self.failures}
        self.failures += [(test, words(output)) for test, output in self.output.items() if test not in ended and words(output)]
        for output in self.output.values():
            sys.stdout.write("".join(line for line in output if not noise(line)))
        print(f"FAIL  {self.name:32} {took:7.2f}s  {self.failed} of {tests} tests", flush=True)
        return True


def noise(line):
    return line.startswith(("=== RUN", "=== PAUSE", "=== CONT", "=== NAME", "FAIL\t")) or line.rstrip() in ("FAIL", "PASS")


def words(output):
    """The beginning and the end of what a test printed, for the summary; goroutines of a dump are in the whole output."""
    lines = [line for line in output if not noise(line)]
    for i, line in enumerate(lines):
        if line.startswith("goroutine ") and i > 0:
            lines = lines[:i]
            break
    if len(lines) > 40:
        lines = [*lines[:30], "    ..\n", *lines[-10:]]
    return "".join(line[:600] for line in lines)


def reason(output):
    """The words that a skipped test gave, without the place in the source."""
    for line in output:
        line = line.strip()
        if line and not noise(line) and not line.startswith("--- "):
            return line.partition(": ")[2] or line
    return ""


def run(args, log):
    began = time.monotonic()
    total, failed, final = attempt(args)
    failed = failed and (final or not passes_again(args, total))
    print(f"      go test {' '.join(shown(args))}: {time.monotonic() - began:.0f} s", flush=True)
    if log:
        with open(log, "a", encoding="utf-8") as file:
            file.write(json.dumps(total) + "\n")
    return 1 if failed else 0


def attempt(args):
    """Run go test; return what it came to, whether it failed, and whether that is not to be tried again."""
    packages, failed, final = {}, False, False
    total = {"passed": 0, "failed": 0, "skipped": [], "failures": [], "unsteady": []}
    whole = total["whole"] = []  # packages to run again as a whole
    go = subprocess.Popen(["go", "test", "-json", *args], stdout=subprocess.PIPE, text=True, errors="replace")
    for line in go.stdout:
        try:
            event = json.loads(line)
        except ValueError:
            sys.stdout.write(line)
            continue
        if event.get("Action", "").startswith("build-"):
            sys.stdout.write(event.get("Output", ""))
            continue
        name = event.get("Package", "?")
        package = packages.setdefault(name, Package(name))
        if package.take(event):
            failed = package.show(event) or failed
            total["passed"] += package.passed
            # A package can fail without a test of it: it did not build, or it died.
            total["failed"] += max(package.failed, int(event["Action"] == "fail"))
            total["failures"] += [[name, test, text] for test, text in package.failures]
            total["skipped"] += [[name, test, why] for test, why in package.skipped]
            if event["Action"] == "fail":
                final = final or package.final()
                if package.detector:
                    whole.append(name)
                    total["passed"] -= package.passed
            packages[name] = Package(name)  # the events of tests are not kept
    code = go.wait()
    if code and not total["failed"]:
        total["failed"], final = 1, True
    return total, bool(failed or code), final


def passes_again(args, total):
    """Run the few tests that failed once more, alone. If all pass, move them from the failures to the unsteady."""
    whole = total["whole"]
    tests = {(package, "" if package in whole else test.partition("/")[0]) for package, test, _ in total["failures"]}
    if not 0 < len(tests) <= AGAIN:
        return False
    for package, test in sorted(tests):
        print(f"again {package} {test}".rstrip(), flush=True)
        second, failed, _ = attempt(only(args, package, test))
        if failed or not second["passed"]:
            return False
        total["skipped"] += second["skipped"] if package in whole else []
        total["passed"] += second["passed"] if package in whole else 0
    total["unsteady"], total["failures"] = total["failures"], []
    total["passed"] += total["failed"] - len(whole)
    total["failed"] = 0
    return True


def only(args, package, test):
    """The arguments that run one test of one package, or all of them, and not from the cache."""
    own = args.index("-args") if "-args" in args else len(args)
    flags = [arg for arg in args[:own] if not arg.startswith(("./", "ramjet"))]
    return [*flags, "-count=1", *(["-run", f"^{test}$"] if test else []), package, *args[own:]]


def shown(args):
    """The arguments, with long lists of packages cut short."""
    return args if len(args) <= 6 else [*args[:5], f".. {len(args) - 5} more"]


def sum_up(log):
    passed = failed = 0
    skipped, failures, unsteady = {}, [], []
    with open(log, encoding="utf-8") as file:
        for line in file:
            part = json.loads(line)
            passed += part["passed"]
            failed += part["failed"]
            failures += part["failures"]
            unsteady += part["unsteady"]
            for package, test, why in part["skipped"]:
                skipped[(package, test)] = why
    for (package, test), why in sorted(skipped.items()):
        print(f"skip  {package} {test}: {why}")
    for package, test, text in unsteady:
        print(f"unsteady  {package} {test}: failed, and passed alone\n{text}".rstrip())
    for package, test, text in failures:
        print(f"FAIL  {package} {test}\n{text}".rstrip())
    print(f"{passed} passed, {failed} failed, {len(skipped)} skipped")
    return 1 if failed else 0


def main(args):
    log = None
    if args[:1] == ["--log"]:
        log, args = args[1], args[2:]
    if args == ["--total"]:
        return sum_up(log)
    return run(args, log)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
