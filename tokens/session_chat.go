package tokens

import "slices"

// maxTries is how many old boundaries are tried before the whole is rendered: a rendering by the end costs 0.1 ms, and
// what fails at two boundaries mostly fails at all.
const maxTries = 3

// maxItems is the most items that are rendered at once. A rendering has no limit in time, and takes 10 to 20 us an item.
const maxItems = 4096

// chat appends the ids of a conversation's prompt.
func (s *Source) chat(dst []uint32, scr *Scratch) ([]uint32, string) {
	base := len(dst)
	at := s.now()
	s.itemStates(scr, at)
	n := len(scr.states) - 1
	if s.whole.Load() {
		return s.renderWhole(dst, scr, at)
	}
	if _, m, node := s.cache.longest(scr.states, n, n, false); m != nil {
		dst = append(node.appendIDs(dst), m.tail...)
		scr.ends, scr.node, scr.way, scr.shape = append(scr.ends, len(dst)-base), node, WaySame, m.shape
		return dst, ""
	}
	for tries := 0; scr.conv.endpoint == EndpointChat && tries < maxTries; tries++ {
		var m *mark
		var node *entry
		if n, m, node = s.cache.longest(scr.states, n-1, shortestHistory, true); m == nil {
			break
		}
		if out, ok := s.grow(dst, scr, n, m, node, at); ok {
			return out, ""
		}
	}
	return s.renderWhole(dst, scr, at)
}

// itemStates notes the names of the first 0, 1, 2 .. items under the conversation's head.
func (s *Source) itemStates(scr *Scratch, at int64) {
	c := &scr.conv
	scr.head = c.AppendHead(scr.head[:0])
	state := s.step(kindHead, s.hash(kindHead, aliasOf(scr.head)), hash128{Lo: uint64(at)})
	scr.states = append(scr.states[:0], state)
	if c.endpoint == EndpointResponses && len(c.items) == 0 {
		state = s.step(kindItems, state, s.hash(kindHead, c.raw("input"))) // one text instead of items
		scr.states[0] = state
	}
	for i := range c.items {
		state = s.step(kindItems, state, s.hash(kindItems, c.Item(i)))
		scr.states = append(scr.states, state)
	}
}

// grow appends the ids of a conversation whose first n items are known. ok is false where the old ids cannot be relied
// on, or the new ones cannot be made; the whole is rendered then, which has its own note.
func (s *Source) grow(dst []uint32, scr *Scratch, n int, m *mark, node *entry, at int64) (ids []uint32, ok bool) {
	c := &scr.conv
	base := len(dst)
	if scr.text, ok = c.RenderFrom(scr.text[:0], s.template, n, m.shape); !ok {
		return dst, false
	}
	shape := c.Shape()
	text := aliasOf(scr.text)
	if s.split(scr, text, node.key) != nil || len(text) > 0 && !node.closed && !scr.parts[0].cut {
		return dst, false // what is new would grow together with what is old
	}
	dst = node.appendIDs(dst)
	dst, err := s.encode(dst, scr, text, 0, base)
	if err != nil {
		return dst[:base], false
	}
	scr.ends, scr.node, scr.way, scr.shape = append(scr.ends, len(dst)-base), node, WayGrown, shape
	if tail, known := c.Boundary(s.template); known && tail <= len(text) && at == s.now() {
		s.remember(scr, dst, base, len(text)-tail, node, shape)
	}
	return dst, true
}

// renderWhole renders a conversation from its beginning.
func (s *Source) renderWhole(dst []uint32, scr *Scratch, at int64) ([]uint32, string) {
	c := &scr.conv
	base := len(dst)
	if len(c.items) > maxItems {
		return dst, noteTooLong
	}
	var note string
	if scr.text, note = c.Render(scr.text[:0], s.template); note != "" {
		return dst, note
	}
	scr.rendered = true
	shape := c.Shape()
	text := aliasOf(scr.text)
	special := c.SpecialTokens()
	dst, known, err := s.text(dst, scr, text, special)
	if err != nil {
		return dst, noteOfEncoding(err)
	}
	if special {
		dst = append(dst, s.tokenizer.Suffix()...)
	}
	scr.ends, scr.node, scr.way, scr.shape = append(scr.ends, len(dst)-base), known, WayWhole, shape
	if len(scr.parts) == 0 || s.whole.Load() || at != s.now() {
		return dst, ""
	}
	if tail, ok := c.Boundary(s.template); ok && tail <= len(text) && s.remember(scr, dst, base, len(text)-tail, known, shape) {
		return dst, ""
	}
	i := scr.lastStop()
	if node := s.node(scr, dst, base, i, parentOf(known, scr.parts[i])); node != nil {
		scr.node = node
		s.mark(scr, node, dst[base:], shape, false)
	}
	return dst, ""
}

// parentOf is known, or an older node where known reaches too far.
func parentOf(known *entry, p part) *entry {
	for known != nil && known.key != p.state && (p.ids < 0 || known.total > p.ids) {
		known = known.parent
	}
	return known
}

// remember keeps what a conversation became, for when it grows: the text up to place end, where the generation prompt
// begins, is what it will begin with. parent's ids stand in front of the parts.
func (s *Source) remember(scr *Scratch, ids []uint32, base, end int, parent *entry, shape Shape) bool {
	node := parent
	if i := scr.partAt(end); i >= 0 {
		node = s.node(scr, ids, base, i, parentOf(parent, scr.parts[i]))
	} else if end > 0 || parent == nil {
		return false
	}
	if node == nil {
		return false
	}
	scr.node = node
	s.mark(scr, node, ids[base:], shape, true)
	return true
}

// mark keeps that the conversation's items became node's ids and what follows in ids.
func (s *Source) mark(scr *Scratch, node *entry, ids []uint32, shape Shape, grows bool) {
	m := &mark{node: node.key, tail: slices.Clip(slices.Clone(ids[node.total:])), shape: shape, grows: grows}
	s.cache.put(&entry{key: scr.states[len(scr.states)-1], mark: m})
}
