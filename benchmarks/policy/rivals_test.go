package policy

import (
	"testing"

	"ramjet/kvevents"
)

// seats makes a board over two engines, of which the first is mtp.
func seats(t *testing.T, name string) (*board, *world) {
	t.Helper()
	w := &world{scenario: &scenario{profiles: pair}, blockTokens: 512}
	for i := range pair {
		w.models = append(w.models, newModel(w, i, i == 0, 1000))
	}
	for _, r := range rules() {
		if r.name == name {
			return newBoard(w, r), w
		}
	}
	t.Fatalf("no rule is called %s", name)
	return nil, nil
}

// prompt is a flight with a prompt of so many blocks.
func prompt(seed uint64, blocks int) *flight {
	j := &job{in: blocks*512 + 10, out: 10}
	for k := range blocks {
		j.words = append(j.words, mix(seed<<20+uint64(k)+1))
	}
	return &flight{job: j}
}

// TestRules: each rule's own sentence, where two rules would differ.
func TestRules(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rule, why string
		set       func(b *board, w *world)
		blocks    int
		limit     int64
		want      int
	}{
		{"least-requests", "one request less", func(b *board, _ *world) { b.seats[0].requests = 1; b.held[0] = 5000 }, 10, 0, 1},
		{"llm-d 2:1:1", "all cached outweighs a queue", func(b *board, w *world) {
			b.held[0] = 5130
			w.models[0].waiting = make([]*flight, 5)
		}, 10, 0, 0},
		{"llm-d 2:1:1", "a third cached does not", func(b *board, w *world) {
			b.held[0] = 1536
			w.models[0].waiting = make([]*flight, 5)
		}, 10, 0, 1},
		{"dynamo", "resident blocks of others outbid a hit", func(b *board, _ *world) {
			b.held[0] = 5120
			for k := range uint64(20) {
				b.seats[0].active[k] = 1
			}
		}, 10, 0, 1},
		{"smg cache_aware", "the highest overlap", func(b *board, _ *world) { b.held[1] = 512; b.seats[1].requests = 30 }, 10, 0, 1},
		{"smg cache_aware", "until the counts part", func(b *board, _ *world) { b.held[1] = 5120; b.seats[1].requests = 33 }, 10, 0, 0},
		{"original", "beyond 32 chunks nothing counts", func(b *board, _ *world) { b.held[0] = 100 * 512; b.seats[0].units = 9 }, 100, 0, 1},
		{"original", "a short cap prefers mtp", nil, 3, 128, 0},
		{"original", "no cap prefers plain decoding", nil, 3, 0, 1},
		{"lmetric", "tokens times batch", func(b *board, _ *world) { b.held[0] = 2560; b.seats[0].requests = 2 }, 10, 0, 1},
		{"strict", "any difference in cached tokens decides", func(b *board, _ *world) { b.held[0] = 512; b.seats[0].requests = 500 }, 10, 0, 0},
		{"strict", "then load", func(b *board, _ *world) { b.seats[1].requests = 1 }, 10, 0, 0},
	} {
		b, w := seats(t, c.rule)
		f := prompt(7, c.blocks)
		f.job.limit = c.limit
		if c.set != nil {
			c.set(b, w)
		}
		for range 3 { // not by turns
			if got := b.rule.choose(b, w, f); got != c.want {
				t.Errorf("%s, %s: engine %d, want %d", c.rule, c.why, got, c.want)
			}
		}
	}
}

// TestRulesCountBack: every book is empty after all requests have ended.
func TestRulesCountBack(t *testing.T) {
	t.Parallel()
	s := &scenario{name: "burst", profiles: pair, make: burst(60, 9000, 20)}
	load := s.make(nil, nil, false)
	for i, j := range load.jobs {
		f := prompt(uint64(i%4), 17)
		j.words = f.job.words
	}
	for _, r := range rules() {
		var b *board
		c := candidate{name: r.name, settings: defaults(), make: func(w *world) chooser { b = newBoard(w, r); return b }}
		got, err := play(s, load, c)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.e2e) != 60 {
			t.Errorf("%s: %d answers of 60", r.name, len(got.e2e))
		}
		for i, seat := range b.seats {
			if seat.requests != 0 || seat.prefill != 0 || seat.units != 0 || len(seat.early) != 0 || len(seat.active) != 0 || len(b.lead) != 0 {
				t.Errorf("%s: engine %d is left with %+v, %d leads", r.name, i, seat, len(b.lead))
			}
		}
	}
}

// TestPayloads: what is published reads back as vLLM's events do.
func TestPayloads(t *testing.T) {
	t.Parallel()
	f := prompt(3, 4)
	keys := f.job.keys(512)
	var d kvevents.Decoder
	var kinds []kvevents.EventKind
	batch, err := d.Decode(payload(epoch+1.5, 9, []uint64{42, 43}, []run{{f, 0, 2}, {f, 2, 4}}, 512), func(e *kvevents.Event) {
		kinds = append(kinds, e.Kind)
		switch {
		case e.Kind == kvevents.EventRemoved && (len(e.Hashes) != 2 || e.Hashes[0] != mix(42^9)):
			t.Errorf("removed %v", e.Hashes)
		case e.Kind == kvevents.EventStored && (len(e.Tokens) != 1024 || e.BlockTokens != 512 || !e.Resident()):
			t.Errorf("stored %d tokens in blocks of %d", len(e.Tokens), e.BlockTokens)
		case e.Kind == kvevents.EventStored && e.HasParent && e.Parent != mix(keys[1]^9):
			t.Errorf("behind %x", e.Parent)
		case e.Kind == kvevents.EventStored && e.Tokens[1] != uint32(f.job.words[len(kinds)*2-4]>>32):
			t.Errorf("ids %v", e.Tokens[:2])
		}
	})
	if err != nil || batch.Time != epoch+1.5 || batch.Odd != 0 || len(kinds) != 3 {
		t.Errorf("%+v, %v, kinds %v", batch, err, kinds)
	}
}
