// Package policy measures the decision: request traces are played against model engines in virtual time, and every
// request is placed by the very objects that serve builds. Real are route.Router, lease.Book, radix.Index,
// radix.Memory, each engine's kvevents.Feed with its audit (fed through a pipe with ZMTP messages and msgpack as vLLM
// publishes them), and probe.Monitor, which admits the engines. Only clock, sockets and engines are replaced. Token ids
// come from the traces' blocks, and no text is tokenized.
//
// Other routers' rules of decision are written anew in rivals.go, for comparison alone; they see the same index.
//
// A run belongs to one goroutine and gives the same figures for the same seed: the feeds' goroutines are waited for
// after each batch. It refuses to say how fast anything is in wall time, and nothing of it is part of the product.
package policy
