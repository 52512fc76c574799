package radix

import "unsafe"

// join maps the hashes by which an engine names its blocks to where those blocks stand in the tree, and counts their
// copies: open addressing over 16-byte entries without pointers, so that a million of them are nothing to the garbage
// collector. Its owner's lock guards it.
//
// A large one has many parts, each for an equal share of the names, which grow at different times: together they are
// never emptier than they are on average, and growing one keeps nobody waiting.
type join struct {
	parts []part // none, one, or 1<<partBits
	bits  uint8  // of a name that say which part is its own: 0 or partBits
	used  int
	room  int // lines of all parts
}

// part is a table of some of the names, one cache line of entries after the other. An entry stands in its home or, as
// that and what follows are full, in the first line behind it that was not. A home is in proportion to the name, so that
// a larger table has the names in much the same order: growing it is one walk from front to end, and needs no power of
// two.
type part struct {
	lines []line // the last is never full, so that every search ends
	homes uint64 // how many of them are somebody's home; what is pushed behind these has a tail of its own
	used  int    // entries
}

// line is what a processor fetches at once. Its entries come first and then its gaps.
type line [4]entry

// entry is one hash of one group of one engine.
type entry struct {
	name    uint64 // nameOf the hash
	holding uint32 // index in life.holdings, or nowhere
	at      uint16 // position in that node's run
	copies  uint16 // 0: no entry; the top bit is doubtful
}

const (
	// nowhere is the holding of a hash that the engine announced and that no key can be given: its removal is no
	// surprise, and what follows it is nowhere too.
	nowhere = ^uint32(0)
	// doubtful marks a block that lost a copy while it had others. vLLM up to 0.33 announces every copy's removal; a
	// version that announces the last one's alone (vLLM pull request 55092) is told by it.
	doubtful = 1 << 15
	// mostCopies is where counting stops: vLLM makes one copy per running request, by default 1,024 at most.
	mostCopies = doubtful - 1

	lineBytes  = int64(unsafe.Sizeof(line{}))
	leastHomes = 3
	partBits   = 6
	partsFrom  = 1 << 16 // entries from which on there are parts
	// mostUsed, in 32nds of the entries at home, is how full a table gets before it grows: fuller, gaps are far away.
	mostUsed = 27
)

// nameOf spreads hashes over all words: engines' hashes may be anything, also numbers in order. No two have the same
// name, as the factor is odd.
func nameOf(hash uint64) uint64 { return hash * 0x9e3779b97f4a7c15 }

// half is the upper half of a hash's name, which says where it belongs.
func half(hash uint64) uint32 { return uint32(nameOf(hash) >> 32) }

func (e *entry) count() int { return int(e.copies &^ doubtful) }

func (l *line) full() bool { return l[len(l)-1].copies != 0 }

// home is the line to which a name belongs. bits are those in front of it that say the part.
func (p *part) home(name uint64, bits uint8) int { return int(name << bits >> 32 * p.homes >> 32) }

// seek returns where the name is, or the gap where it would have to be.
func (p *part) seek(name uint64, bits uint8) (at, i int, found bool) {
	for at = p.home(name, bits); ; at++ {
		l := &p.lines[at]
		for i := range l {
			if l[i].copies == 0 {
				return at, i, false
			}
			if l[i].name == name {
				return at, i, true
			}
		}
	}
}

// find returns the entry of a name, or nil. It is valid until the next put or remove.
func (j *join) find(name uint64) *entry {
	if j.used == 0 {
		return nil
	}
	p := &j.parts[name>>(64-j.bits)]
	if at, i, found := p.seek(name, j.bits); found {
		return &p.lines[at][i]
	}
	return nil
}

// fetch begins to bring what find, put and remove will look at into the processor's caches. A large table is not
// there, and a processor fetches at once what it need not wait for.
func (j *join) fetch(half uint32) {
	if j.used > 0 {
		p := &j.parts[half>>(32-j.bits)]
		prefetch(unsafe.Pointer(&p.lines[uint64(half<<j.bits)*p.homes>>32]))
	}
}

// put returns the entry of a name; a new one is all zero but for its name, and must be given a copy.
func (j *join) put(name uint64) *entry {
	if j.used >= partsFrom && j.bits == 0 || j.parts == nil {
		j.split()
	}
	p := &j.parts[name>>(64-j.bits)]
	if 8*uint64(p.used+1) > mostUsed*p.homes {
		j.grow(p)
	}
	for {
		at, i, found := p.seek(name, j.bits)
		if e := &p.lines[at][i]; found {
			return e
		} else if i+1 < len(line{}) || at+1 < len(p.lines) {
			e.name = name
			p.used++
			j.used++
			return e
		}
		j.resize(p, p.homes, 2*p.tail())
	}
}

// remove takes out the entry of a name that is there.
func (j *join) remove(name uint64) {
	p := &j.parts[name>>(64-j.bits)]
	at, i, _ := p.seek(name, j.bits)
	if gap := p.take(at, i); gap != nil {
		p.pull(at, gap, j.bits)
	}
	p.used--
	j.used--
	// A table of which 15 % are used becomes one of which 60 % are.
	if p.homes > leastHomes && 5*uint64(p.used) < 3*p.homes {
		j.resize(p, max(p.homes/4, leastHomes), 0)
	}
}

// pull fills the gap of a line that was full with an entry that was pushed on, whose gap is filled likewise.
func (p *part) pull(at int, gap *entry, bits uint8) {
	for next := at + 1; gap != nil; next++ {
		l := &p.lines[next]
		full := l.full()
		for i := range l {
			if l[i].copies != 0 && p.home(l[i].name, bits) <= at {
				*gap = l[i]
				gap, at = p.take(next, i), next
				break
			}
		}
		if !full {
			break
		}
	}
}

// take takes an entry out of a line and returns the gap if the line was full.
func (p *part) take(at, i int) *entry {
	l := &p.lines[at]
	last := len(l) - 1
	for l[last].copies == 0 {
		last--
	}
	l[i] = l[last]
	l[last] = entry{}
	if last < len(l)-1 {
		return nil
	}
	return &l[last]
}

// any returns some entry or a gap; all of them, in turn, as n goes up.
func (j *join) any(n int) *entry {
	p := &j.parts[n%len(j.parts)]
	n /= len(j.parts)
	return &p.lines[n/len(line{})%len(p.lines)][n%len(line{})]
}

func (p *part) tail() int { return len(p.lines) - int(p.homes) }

// grow makes a part larger: where there are many by five eighths, as their times differ; a single one by a quarter.
func (j *join) grow(p *part) {
	more := p.homes / 4
	if j.bits > 0 {
		more = p.homes * 5 / 8
	}
	j.resize(p, p.homes+max(more, 1), 0)
}

// resize makes a part's table anew, of so many homes, which must be enough, and at least that tail.
func (j *join) resize(p *part, homes uint64, tail int) {
	old := p.lines
	p.homes = homes
	tail = max(tail, 1+int(min(homes/64, 7)))
	for !p.fill(old, tail, j.bits) {
		tail *= 2
	}
	j.room += len(p.lines) - len(old)
}

// fill puts entries into a new table, if that tail is long enough.
func (p *part) fill(old []line, tail int, bits uint8) bool {
	p.lines = make([]line, int(p.homes)+tail)
	for i := range old {
		for k := range old[i] {
			e := &old[i][k]
			if e.copies == 0 {
				break
			}
			at := p.home(e.name, bits)
			for p.lines[at].full() {
				at++
			}
			l := &p.lines[at]
			free := 0
			for l[free].copies != 0 {
				free++
			}
			if l[free] = *e; at == len(p.lines)-1 && l.full() {
				return false
			}
		}
	}
	return true
}

// split makes the first part, or many of one.
func (j *join) split() {
	if j.parts == nil {
		j.parts = make([]part, 1)
		j.resize(&j.parts[0], leastHomes, 0)
		return
	}
	whole := j.parts[0].lines
	var counts [1 << partBits]int
	for i := range whole {
		for k := range whole[i] {
			if e := &whole[i][k]; e.copies != 0 {
				counts[e.name>>(64-partBits)]++
			}
		}
	}
	j.parts, j.bits, j.room = make([]part, 1<<partBits), partBits, 0
	for i, n := range counts {
		// Each a little larger than the one before it, the last by nearly five eighths: so they will grow at different times.
		p := &j.parts[i]
		p.homes = uint64(max(n*(1<<partBits+i*5/8)*8/mostUsed>>partBits, leastHomes)) + 1
		p.lines = make([]line, int(p.homes)+8)
		j.room += len(p.lines)
	}
	j.used = 0
	for i := range whole {
		for k := range whole[i] {
			if e := &whole[i][k]; e.copies != 0 {
				*j.put(e.name) = *e
			}
		}
	}
}
