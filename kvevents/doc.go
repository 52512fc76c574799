// Package kvevents learns from each engine's KV-cache events which blocks are in its cache, and knows when that
// knowledge is wrong.
//
// From the wire upwards: a ZMTP 3.1 client (RFC 37/ZMTP) subscribes to what vLLM publishes and asks for replays; a
// decoder reads every shape of event that vLLM has used; a Feed puts batches into their order, repairs gaps from the
// engine's ring and gives the events to a Residency; an Audit compares what was predicted with what engines report.
// Feed and Audit together say how far an engine's residency may be believed, always with a reason.
//
// A Feed owns one goroutine, which alone writes the engine's Residency; its Trust, Stats and Answered may be called from
// any goroutine. Decoder, Reader and Message belong to one goroutine at a time.
//
// It refuses to guess: a batch that is lost and cannot be had again costs the whole record of that engine, since a
// removal may have been in it. It never uses the engines' block hashes as keys of prompts (they differ between versions
// and processes), asks engines nothing over HTTP, and decides nothing: route reads what it learnt.
package kvevents
