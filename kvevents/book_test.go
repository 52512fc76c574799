package kvevents

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"ramjet/radix"
)

// book is the obvious residency: copies counted in a map.
type book struct {
	mu     sync.Mutex // tests read while the feed writes
	copies map[int]map[uint64]int
	stores []radix.Store
	size   int
	cap    int      // distinct blocks of group 0; 0: no bound
	lost   uint64   // forgotten
	log    []string // Clear, Drop, DropDoubtful, SetDrop
}

func newBook() *book { return &book{copies: map[int]map[uint64]int{}} }

func (b *book) Store(s *radix.Store) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.copies[s.Group] == nil {
		b.copies[s.Group] = map[uint64]int{}
	}
	unknown := s.HasParent && b.copies[s.Group][s.Parent] == 0
	for _, h := range s.Hashes {
		b.copies[s.Group][h]++
		if b.cap > 0 && len(b.copies[s.Group]) > b.cap {
			delete(b.copies[s.Group], h)
			b.lost++
		}
	}
	b.size = s.BlockTokens
	kept := *s
	kept.Hashes, kept.IDs = slices.Clone(s.Hashes), slices.Clone(s.IDs)
	kept.Lookahead, kept.Extra = slices.Clone(s.Lookahead), slices.Clone(s.Extra)
	b.stores = append(b.stores, kept)
	return unknown
}

func (b *book) Remove(group int, hashes []uint64) (unknown int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range hashes {
		if b.copies[group][h] == 0 {
			unknown++
			continue
		}
		b.copies[group][h]--
	}
	return unknown
}

func (b *book) note(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log = append(b.log, what)
	if what == "clear" || what == "drop" {
		b.copies = map[int]map[uint64]int{}
	}
}

func (b *book) Clear()            { b.note("clear") }
func (b *book) Drop()             { b.note("drop") }
func (b *book) DropDoubtful() int { b.note("doubtful"); return 1 }
func (b *book) SetDrop(n int)     { b.note(fmt.Sprint("set drop ", n)) }

func (b *book) Forgotten() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lost
}

func (b *book) BlockTokens() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.size
}

func (b *book) equal(want []uint64) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var got []uint64
	for h, n := range b.copies[0] {
		for range n {
			got = append(got, h)
		}
	}
	slices.Sort(got)
	want = slices.Clone(want)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		return fmt.Sprintf("%d resident: %.200s; want %d: %.200s", len(got), fmt.Sprint(got), len(want), fmt.Sprint(want))
	}
	return ""
}

func (b *book) did() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.log, ", ")
}
