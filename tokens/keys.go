package tokens

import "ramjet/radix"

// AppendKeys appends the keys of the full blocks of blockTokens ids of a prompt behind root (radix.Root): what
// radix.AppendKeys appends. ids are those of the first prompt that the last call of Ids with scr returned: of what was
// remembered of them the keys are remembered too, so that only new blocks are hashed. It allocates only to grow dst
// and where there are new keys to remember.
func (s *Source) AppendKeys(dst []uint64, root uint64, ids []uint32, blockTokens int, scr *Scratch) []uint64 {
	if blockTokens <= 0 {
		panic("BUG: a block holds at least one token")
	}
	nodes := scr.nodes[:0]
	if scr.node != nil && scr.node.total <= len(ids) {
		for e := scr.node; e != nil; e = e.parent {
			nodes = append(nodes, e)
		}
	}
	scr.nodes = nodes
	scr.runs = s.cache.runsOf(scr.runs[:0], nodes, root, blockTokens)
	parent, done := root, 0 // done blocks have their keys
	for i := len(nodes) - 1; i >= 0; i-- {
		end := nodes[i].total / blockTokens
		if end == done {
			continue
		}
		run := scr.runs[i]
		if run == nil {
			run = radix.AppendKeys(make([]uint64, 0, end-done), parent, ids[done*blockTokens:end*blockTokens], blockTokens)
			s.cache.putRun(nodes[i], keyRun{root, blockTokens, run})
		}
		dst = append(dst, run...)
		parent, done = run[len(run)-1], end
	}
	clear(scr.nodes)
	clear(scr.runs)
	return radix.AppendKeys(dst, parent, ids[done*blockTokens:], blockTokens)
}
