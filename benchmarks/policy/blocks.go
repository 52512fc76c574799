package policy

// blocks is an engine's KV cache: blocks with a key stay after use and are evicted least recently used first, those
// that requests use are pinned. Of one request the tail is freed first and so evicted first, as vLLM does
// (vllm/v1/core/kv_cache_manager.py free).
type blocks struct {
	capacity int
	byKey    map[uint64]int32
	cached   []cachedBlock // cached[0] is the ring of unpinned ones: next is the least recently used
	unused   []int32
	pinned   int // blocks with a key in use
	private  int // blocks in use without a key: half-filled ones, answers, copies
	reserved int // promised to admitted requests and not taken yet
	evicted  []uint64
}

type cachedBlock struct {
	key        uint64
	users      int32
	prev, next int32
}

func newBlocks(capacity int) *blocks {
	return &blocks{capacity: capacity, byKey: make(map[uint64]int32), cached: make([]cachedBlock, 1)}
}

// match returns how many leading keys are cached, and how many of those nobody uses.
func (b *blocks) match(keys []uint64) (n, idle int) {
	for _, key := range keys {
		at, ok := b.byKey[key]
		if !ok {
			break
		}
		n++
		if b.cached[at].users == 0 {
			idle++
		}
	}
	return n, idle
}

// room is how many blocks can still be promised.
func (b *blocks) room() int { return b.capacity - b.pinned - b.private - b.reserved }

// pin takes a cached block into use; the key is cached.
func (b *blocks) pin(key uint64) int32 {
	at := b.byKey[key]
	c := &b.cached[at]
	if c.users == 0 {
		b.cached[c.prev].next, b.cached[c.next].prev = c.next, c.prev
		b.pinned++
	}
	c.users++
	return at
}

func (b *blocks) unpin(at int32) {
	c := &b.cached[at]
	if c.users--; c.users > 0 {
		return
	}
	b.pinned--
	last := b.cached[0].prev
	c.prev, c.next = last, 0
	b.cached[last].next, b.cached[0].prev = at, at
}

// take turns one promised block into a real one, which a cached one may have to make room for.
func (b *blocks) take() {
	b.reserved--
	if len(b.byKey)+b.private < b.capacity {
		return
	}
	at := b.cached[0].next
	if at == 0 {
		panic("BUG: more blocks were promised than there are")
	}
	c := &b.cached[at]
	b.cached[c.prev].next, b.cached[c.next].prev = c.next, c.prev
	delete(b.byKey, c.key)
	b.evicted = append(b.evicted, c.key)
	b.unused = append(b.unused, at)
}

// store takes a promised block for a key that is not cached, in use.
func (b *blocks) store(key uint64) int32 {
	b.take()
	var at int32
	if n := len(b.unused); n > 0 {
		at, b.unused = b.unused[n-1], b.unused[:n-1]
	} else {
		at = int32(len(b.cached)) //nolint:gosec // an engine has some ten thousand blocks
		b.cached = append(b.cached, cachedBlock{})
	}
	b.cached[at] = cachedBlock{key: key, users: 1}
	b.byKey[key] = at
	b.pinned++
	return at
}

// usage is the share of the blocks in use.
func (b *blocks) usage() float64 { return float64(b.pinned+b.private) / float64(b.capacity) }
