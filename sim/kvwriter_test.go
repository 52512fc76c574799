package sim

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
)

// keptBatches is a sink that keeps a readable copy of what it gets.
type keptBatches struct {
	batches []string
	resets  int
}

func (k *keptBatches) publish(events []kvEvent) {
	text := ""
	for _, e := range events {
		switch e.kind {
		case kvRemoved:
			text += fmt.Sprintf("removed %v %s g%d; ", nums(e.hashes), *e.medium, *e.groupIdx)
		case kvCleared:
			text += "cleared; "
		default:
			text += fmt.Sprintf("stored %v after %v g%d %s %d tokens of %d", nums(e.hashes), e.parent != nil, *e.groupIdx, e.specKind, len(e.tokenIDs), e.blockSize)
			if e.loraName != nil {
				text += fmt.Sprintf(" lora %d %s", *e.loraID, *e.loraName)
			}
			text += fmt.Sprintf(" keys %q ahead %v session %q; ", e.extraKeys, e.lookahead, e.sessionID)
		}
	}
	k.batches = append(k.batches, text)
}

func (k *keptBatches) reset() { k.resets++ }

func nums(hashes []blockHash) (out []uint64) {
	for _, h := range hashes {
		out = append(out, h.num)
	}
	return out
}

// TestWriter: what each change becomes, in one batch for a step, and none for a step without changes.
func TestWriter(t *testing.T) {
	t.Parallel()
	sink := &keptBatches{}
	w := newKVWriter(sink, 2, false)
	ids := []uint32{1, 2, 3, 4, 5, 6}
	w.StepEnd()
	w.Cleared()
	w.Removed(1, 70)
	w.Stored(StoredBlocks{Group: 1, Kind: kindAttention, BlockTokens: 2, Hashes: []uint64{8, 9}, Tokens: ids[:4], First: true, Salt: "s", LoRA: "a", Session: "x"})
	w.Stored(StoredBlocks{Group: 0, Kind: kindMamba, BlockTokens: 2, Hashes: []uint64{9}, Tokens: ids[:4], First: true, Salt: "s"})
	w.Stored(StoredBlocks{Group: 0, Kind: kindMamba, BlockTokens: 2, Tokens: ids[4:6], Parent: 9, HasParent: true})
	w.StepEnd()
	w.Stored(StoredBlocks{Kind: kindAttention, BlockTokens: 2, Hashes: []uint64{11, 12}, Tokens: ids[:4], Lookahead: 1, Behind: ids[2:5], Salt: "s", Parent: 10, HasParent: true})
	w.StepEnd()
	want := []string{
		`cleared; removed [70] GPU g1; ` +
			`stored [8 9] after false g1 full_attention 4 tokens of 2 lora 1 a keys [["a" "s"] ["a"]] ahead [] session "x"; ` +
			`stored [9] after false g0 mamba 4 tokens of 2 keys [[]] ahead [] session ""; ` +
			`stored [] after true g0 mamba 2 tokens of 2 keys [] ahead [] session ""; `,
		`stored [11 12] after true g0 full_attention 4 tokens of 2 keys [[] []] ahead [[3] [5]] session ""; `,
	}
	if !slices.Equal(sink.batches, want) {
		t.Errorf("batches\n%q, wanted\n%q", sink.batches, want)
	}
	w.Removed(0, 1)
	w.Restarted()
	w.StepEnd()
	if len(sink.batches) != 2 || sink.resets != 1 {
		t.Errorf("%d batches, %d resets: a dead process published something", len(sink.batches), sink.resets)
	}
}

// TestWriterDigests: the byte form is 32 bytes that end in the integer form, and each event keeps its own.
func TestWriterDigests(t *testing.T) {
	t.Parallel()
	var got [][]blockHash
	w := newKVWriter(nil, 1, true)
	for i := range uint64(100) {
		w.Stored(StoredBlocks{Kind: kindAttention, BlockTokens: 1, Hashes: []uint64{i, ^i}, Tokens: []uint32{1, 2}, Parent: i + 7, HasParent: true})
	}
	seen := map[string]bool{}
	for i := range w.pending {
		e := &w.pending[i]
		got = append(got, slices.Concat(e.hashes, []blockHash{*e.parent}))
		for k, h := range got[i] {
			want := []uint64{uint64(i), ^uint64(i), uint64(i) + 7}[k]
			if len(h.bytes) != 32 || h.num != want || binary.BigEndian.Uint64(h.bytes[24:]) != want {
				t.Fatalf("event %d, hash %d: %x for %x", i, k, h.bytes, want)
			}
			seen[string(h.bytes)] = true
		}
	}
	if len(seen) != 207 { // the parents 7 to 99 are hashes too
		t.Errorf("%d different digests", len(seen))
	}
}

// TestWriterAgainAndAgain: what a step's events point into is not what the next step's are written over, as long as
// the step lasts.
func TestWriterAgainAndAgain(t *testing.T) {
	t.Parallel()
	for _, bytes := range []bool{false, true} {
		var sums []uint64
		w := newKVWriter(nil, 1, bytes)
		w.sink = sinkEvents(func(events []kvEvent) {
			sum := uint64(0)
			for _, e := range events {
				for _, h := range e.hashes {
					sum += h.num
				}
			}
			sums = append(sums, sum)
		})
		for step := range uint64(50) {
			want := uint64(0)
			for i := range step {
				w.Removed(0, step*1000+i)
				want += step*1000 + i
			}
			if w.StepEnd(); step > 0 && sums[step-1] != want {
				t.Fatalf("step %d: %d, wanted %d", step, sums[step-1], want)
			}
		}
	}
}

type sinkEvents func([]kvEvent)

func (f sinkEvents) publish(events []kvEvent) { f(events) }
func (f sinkEvents) reset()                   {}
