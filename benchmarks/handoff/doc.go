// Package handoff measures on real vLLM what handing token ids to the engine is worth: the time to the first token of a
// long conversation that comes back, requests a second, and the CPU of the engine's API process, beside no router at all
// and beside a router that asks the engine's /tokenize before every request.
//
// vLLM is the CPU build that scripts/vllm-install.sh installs, with a model of one layer and the vocabulary and template of
// Qwen3: what the model computes is next to nothing, and what the API process does is the real thing. So the figures are
// about that process and the way to it, not about GPUs. Milliseconds are this machine's; ratios within a round are compared.
//
// Ramjet, vLLM and the asking router are processes of their own. The package shares no code with Ramjet. It refuses to
// count a request whose conversation was not in the engine's cache.
//
// Nothing here is safe for concurrent use unless its comment says so.
package handoff
