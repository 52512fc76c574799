package sim

import "container/list"

// offload is the CPU tier that vLLM's OffloadingConnector keeps beside the GPU's blocks: what becomes full is copied
// there too, least recently used out, and a prompt goes on from there where the GPU holds no more of it. It belongs to
// the scheduler.
type offload struct {
	limit int // blocks
	at    map[uint64]*list.Element
	order list.List // of hashes, the least recently used in front
}

func newOffload(limit int) *offload { return &offload{limit: limit, at: map[uint64]*list.Element{}} }

// add stores blocks, refreshes those that are there, and returns what is new and what had to go.
func (o *offload) add(hashes []uint64) (added, removed []uint64) {
	for _, h := range hashes {
		if e, ok := o.at[h]; ok {
			o.order.MoveToBack(e)
			continue
		}
		if o.order.Len() == o.limit {
			oldest := o.order.Remove(o.order.Front()).(uint64)
			delete(o.at, oldest)
			removed = append(removed, oldest)
		}
		o.at[h] = o.order.PushBack(h)
		added = append(added, h)
	}
	return added, removed
}

// run is how many of the hashes, from the first on, are there; it refreshes them.
func (o *offload) run(hashes []uint64) int {
	for n, h := range hashes {
		e, ok := o.at[h]
		if !ok {
			return n
		}
		o.order.MoveToBack(e)
	}
	return len(hashes)
}

// loadable is how many blocks behind those that are hit come from the CPU tier.
func (c *Core) loadable(s *Sequence, hits int) int {
	if c.cpu == nil {
		return 0
	}
	last := min(len(s.tokens)-1, len(s.tokens)-c.o.Lookahead)/c.o.BlockTokens - c.dropped()
	return c.cpu.run(s.hashesFor(max(last, hits))[hits:])
}

// offload copies blocks that became full to the CPU tier and tells of it: the connector's events name hashes only.
func (c *Core) offload(hashes []uint64) {
	if c.cpu == nil {
		return
	}
	added, removed := c.cpu.add(hashes)
	if c.o.Observer != nil && len(added) > 0 {
		c.o.Observer.Offloaded(added, removed)
	}
}
