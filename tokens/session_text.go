package tokens

import (
	"errors"
	"slices"
	"time"
)

// part is a cut token of a text or what stands between two of them: text[previous part's end:end].
type part struct {
	end   int
	id    uint32  // of a cut token
	cut   bool    // it is one
	state hash128 // names the text up to end
	hash  hash128 // names a segment wherever it stands
	ids   int     // how many there are up to end, once encoded
}

// shortestSegment is the length in bytes from which a segment's ids are kept: a shorter one is encoded in the time
// that it takes to find it, and would take more memory than its ids.
const shortestSegment = 48

// longestTail is the most bytes behind a text's last cut that are held apart from the node in front of them: the
// generation prompt, which will not be there when the conversation has grown, is shorter.
const longestTail = 512

// leastHead is the length in bytes from which the text up to the first cut behind it is a node of its own: what many
// conversations have in common is a system prompt with tools.
const leastHead = 1 << 10

// What is done in a call even when the time is up, as a rendering may take it all: a text whose ids are known may then
// still be had, and needs to be cut, and the short texts between its cuts to be encoded. These take 10 ms and 2 ms.
const (
	lateCutting  = 1 << 20 // in bytes of common text
	lateEncoding = 32 << 10
)

// split cuts a text that follows what state names and notes its parts. The error is ErrTooSlow.
func (s *Source) split(scr *Scratch, text string, state hash128) error {
	scr.parts = scr.parts[:0]
	var w work
	w.begin(Limits{})
	if s.maxTime > 0 { // which is looked at only when the allowance is spent
		w.left, w.deadline = lateCutting-scr.cutting, scr.deadline
		defer func() { scr.cutting = lateCutting - w.left }()
	}
	for at := 0; ; {
		start, token := s.tokenizer.bpe.added.cuts.find(text, at, &w)
		w.spend(partWork)
		if w.err != nil {
			return w.err
		}
		if token == nil {
			s.addSegment(scr, text, at, len(text), state)
			return nil
		}
		state = s.addSegment(scr, text, at, start, state)
		state = s.step(kindCut, state, hash128{Lo: uint64(token.ID)})
		at = start + len(token.match)
		scr.parts = append(scr.parts, part{end: at, id: token.ID, cut: true, state: state})
	}
}

// partWork is what a part costs in bytes of text that is looked at: some 100 ns.
const partWork = 8

// addSegment notes a text without cuts, which may be empty.
func (s *Source) addSegment(scr *Scratch, text string, start, end int, state hash128) hash128 {
	if start == end {
		return state
	}
	h := s.hash(kindSegment, text[start:end])
	state = s.step(kindText, state, h)
	scr.parts = append(scr.parts, part{end: end, state: state, hash: h})
	return state
}

// encode appends the ids of the parts from index i on; base is where the ids of the whole text begin in dst. With an
// error dst is returned as far as it came, and what was encoded is kept for the next attempt.
func (s *Source) encode(dst []uint32, scr *Scratch, text string, i, base int) ([]uint32, error) {
	for ; i < len(scr.parts); i++ {
		p := &scr.parts[i]
		if p.cut {
			dst = append(dst, p.id)
		} else {
			start := 0
			if i > 0 {
				start = scr.parts[i-1].end
			}
			var err error
			if dst, err = s.segment(dst, scr, text[start:p.end], p.hash); err != nil {
				return dst, err
			}
		}
		p.ids = len(dst) - base
	}
	return dst, nil
}

// segment appends the ids of a text without cuts.
func (s *Source) segment(dst []uint32, scr *Scratch, text string, key hash128) ([]uint32, error) {
	if len(text) >= shortestSegment {
		if ids := s.cache.segment(key); ids != nil {
			return append(dst, ids...), nil
		}
		s.leave(scr)
	}
	lim := s.limits(scr)
	if lim.MaxTime < 0 && len(text) < shortestSegment {
		if scr.late += len(text) + partWork; scr.late <= lateEncoding {
			lim.MaxTime = 0
		}
	}
	if lim.MaxTime < 0 {
		return dst, ErrTooSlow
	}
	start := len(dst)
	scr.encoded += len(text)
	dst, err := s.tokenizer.AppendEncode(dst, text, lim)
	if err == nil && len(text) >= shortestSegment {
		s.cache.put(&entry{key: key, ids: slices.Clip(slices.Clone(dst[start:]))})
	}
	return dst, err
}

// limits are what is left to this call; a MaxTime below 0 is nothing.
func (s *Source) limits(scr *Scratch) Limits {
	lim := Limits{MaxBytes: s.maxBytes}
	if s.maxTime > 0 {
		if lim.MaxTime = time.Until(scr.deadline); lim.MaxTime == 0 {
			lim.MaxTime = -1
		}
	}
	return lim
}

// leave leaves half of the time to encoding what is new, once a call, where a rendering and the search for what is known
// took more: of a conversation that is long and new each request must get further than the one before.
func (s *Source) leave(scr *Scratch) {
	if s.maxTime == 0 || !scr.rendered {
		return
	}
	scr.rendered = false
	if half := s.maxTime / 2; time.Until(scr.deadline) < half {
		scr.deadline = time.Now().Add(half)
	}
}

// text appends the ids of a whole text. special: with what the tokenizer puts in front; what it puts behind is the
// caller's. known is the deepest node that was found, which is of use for put.
func (s *Source) text(dst []uint32, scr *Scratch, text string, special bool) (out []uint32, known *entry, err error) {
	if s.maxBytes > 0 && len(text) > s.maxBytes {
		return dst, nil, ErrTooLong
	}
	base := len(dst)
	if s.whole.Load() {
		scr.parts = scr.parts[:0]
		if special {
			dst = append(dst, s.tokenizer.Prefix()...)
		}
		s.leave(scr)
		lim := s.limits(scr)
		if lim.MaxTime < 0 {
			return dst, nil, ErrTooSlow
		}
		scr.encoded += len(text)
		dst, err = s.tokenizer.AppendEncode(dst, text, lim)
		return dst, nil, err
	}
	if err := s.split(scr, text, s.roots[bit(special)]); err != nil {
		return dst, nil, err
	}
	i, known := s.cache.deepest(scr.parts)
	switch {
	case known != nil:
		dst = known.appendIDs(dst)
		for k := range scr.parts[:i+1] {
			scr.parts[k].ids = -1 // not counted; only the node's own end is
		}
		scr.parts[i].ids = known.total
	case special:
		dst = append(dst, s.tokenizer.Prefix()...)
	}
	dst, err = s.encode(dst, scr, text, i+1, base)
	return dst, known, err
}

// node keeps the ids up to the end of part i as a node behind parent, which is nil for a text's beginning. base is
// where the whole text's ids begin in ids. It returns nil where that cannot be.
func (s *Source) node(scr *Scratch, ids []uint32, base, i int, parent *entry) *entry {
	p := scr.parts[i]
	if parent != nil && parent.key == p.state {
		return parent
	}
	if p.ids < 0 {
		return nil
	}
	if parent == nil {
		parent = s.headNode(scr, ids, base, i)
	}
	from := 0
	if parent != nil {
		from = parent.total
	}
	return s.cache.put(&entry{key: p.state, parent: parent, total: p.ids, closed: p.cut, ids: slices.Clip(slices.Clone(ids[base+from : base+p.ids]))})
}

// headNode keeps the beginning of a new text that is likely to be shared, if it ends before part `before`.
func (s *Source) headNode(scr *Scratch, ids []uint32, base, before int) *entry {
	for i := range before {
		if p := scr.parts[i]; p.cut && p.end >= leastHead && p.ids > 0 {
			return s.cache.put(&entry{key: p.state, total: p.ids, closed: true, ids: slices.Clip(slices.Clone(ids[base : base+p.ids]))})
		}
	}
	return nil
}

// partAt returns the part that ends at a place of the text, -1 if there is none.
func (scr *Scratch) partAt(end int) int {
	for i := len(scr.parts) - 1; i >= 0 && scr.parts[i].end >= end; i-- {
		if scr.parts[i].end == end {
			return i
		}
	}
	return -1
}

// lastStop is the part up to which a text may be kept as a node, when nothing is known of how it goes on: what is in
// front of its last cut, else all of it.
func (scr *Scratch) lastStop() int {
	last := len(scr.parts) - 1
	for i := last; i > 0; i-- {
		if scr.parts[i].cut {
			if scr.parts[last].end-scr.parts[i-1].end <= longestTail {
				return i - 1
			}
			break
		}
	}
	return last
}

// noteOfEncoding turns an error of AppendEncode into its note.
func noteOfEncoding(err error) string {
	if errors.Is(err, ErrTooSlow) {
		return noteTooSlow
	}
	return noteTooLong
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}
