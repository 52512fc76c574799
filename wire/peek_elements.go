package wire

import (
	"math"
	"sync"
)

const (
	// maxNoted is how many commas of a list are noted: as many as a prompt
	// that is rendered may have messages (tokens). Longer lists are read again.
	maxNoted = 4096
	// maxNotedBody is the longest body whose commas fit into 32 bits.
	maxNotedBody = math.MaxUint32
	// keptCommas is how many a Peeked keeps room for: a connection has one for
	// as long as it lives, and most of them stream.
	keptCommas = 256
)

// AppendElements appends the spans of the elements of a list that Peek passed,
// without reading them again: half a megabyte of messages costs as much to step
// through as to check. list is Messages or Input, body what Peek got. It reports
// false for every other list, for a value that is no list, for a list that
// another one under one of the two names stands behind, whatever became of that,
// and beyond some 4,000 elements.
func (p *Peeked) AppendElements(dst []Span, body []byte, list Span) (out []Span, ok bool) {
	if p.elementsOf == 0 || int(p.elementsOf) != list.Start {
		return dst, false
	}
	from := list.Start + 1
	for _, comma := range p.commas {
		dst = append(dst, trimmed(body, from, int(comma)))
		from = int(comma) + 1
	}
	if last := trimmed(body, from, list.End-1); last.Start < last.End {
		dst = append(dst, last)
	}
	return dst, true
}

// trimmed is the span from start to end without the blanks at both ends.
func trimmed(b []byte, start, end int) Span {
	for start < end && b[start] <= ' ' {
		start++
	}
	for start < end && b[end-1] <= ' ' {
		end--
	}
	return Span{start, end}
}

// Forget gives up room that is not needed while an answer streams.
// AppendElements and Members answer false from then on.
func (p *Peeked) Forget() {
	p.elementsOf = 0
	if cap(p.commas) > keptCommas {
		p.commas = nil
	}
	p.unlisted = true
	if p.listed != nil {
		memberLists.Put(p.listed)
		p.listed = nil
	}
}

// maxListed is how many members of a body are listed: few requests have more.
const maxListed = 16

// memberLists holds *memberList. It is process-wide because memory is.
var memberLists sync.Pool

type memberList struct {
	n  int
	of [maxListed]Member
}

// Member is where a member of the root object is.
type Member struct {
	nameStart, nameEnd, start, end uint32
	plain                          bool
}

// Name spans the name without its quotes. plain says that it has no escapes;
// without, it may have some.
func (m *Member) Name() (name Span, plain bool) {
	return Span{int(m.nameStart), int(m.nameEnd)}, m.plain
}

// Value spans the value.
func (m *Member) Value() Span { return Span{int(m.start), int(m.end)} }

// Members returns the members of the object that Peek read, in their order and
// with all of one name, so that nobody need read the body again. It reports
// false when there are too many. The list holds until the next Peek or Forget.
func (p *Peeked) Members() (list []Member, ok bool) {
	if p.listed != nil {
		list = p.listed.of[:p.listed.n]
	}
	return list, p.Object && !p.unlisted
}

func (p *Peeked) list(name, value Span, plain bool) {
	if p.listed == nil {
		if p.listed, _ = memberLists.Get().(*memberList); p.listed == nil {
			p.listed = new(memberList)
		}
		p.listed.n = 0
	}
	l := p.listed
	if l.n == maxListed || value.End > maxNotedBody {
		p.unlisted = true
		return
	}
	l.of[l.n] = Member{
		nameStart: uint32(name.Start), nameEnd: uint32(name.End), //nolint:gosec // <= maxNotedBody
		start: uint32(value.Start), end: uint32(value.End), //nolint:gosec // <= maxNotedBody
		plain: plain,
	}
	l.n++
}
