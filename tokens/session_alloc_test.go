//go:build !race

package tokens

import (
	"math"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"ramjet/radix"
	"ramjet/wire"
)

// TestSameItemsAllocateNothing: the same items again, with other members beside them.
func TestSameItemsAllocateNothing(t *testing.T) {
	s := testSource(t)
	body := []byte(longChat(60))
	var p wire.Peeked
	var scr Scratch
	if err := p.Peek(body); err != nil {
		t.Fatal(err)
	}
	ids, _ := s.Ids(nil, EndpointChat, body, &p, &scr)
	root := radix.Root("m", "", "")
	keys := s.AppendKeys(nil, root, ids, 16, &scr)
	n := testing.AllocsPerRun(50, func() {
		var note string
		if ids, note = s.Ids(ids[:0], EndpointChat, body, &p, &scr); note != "" || scr.Way() != WaySame {
			t.Fatalf("%q, way %d", note, scr.Way())
		}
		keys = s.AppendKeys(keys[:0], root, ids, 16, &scr)
	})
	if n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestGrownAllocateLittle: what is allocated for one more turn does not grow with the conversation.
func TestGrownAllocateLittle(t *testing.T) {
	var per [2]float64
	for i, items := range []int{40, 400} {
		turns := newReturning(t, testTokenizer(t), simTemplate(), items, 60)
		per[i] = testing.AllocsPerRun(20, turns.next)
		turns.done(t)
	}
	t.Logf("%.0f allocations at 40 items, %.0f at 400", per[0], per[1])
	if per[1] > per[0]+50 || per[1] > 1000 {
		t.Errorf("%v allocations", per)
	}
}

// TestSourceTimeIsKept: 4 MB of the worst kinds of text end soon after the limit, known or not. What counts is the CPU
// time of the thread, so that other work on the machine is not this one's fault, with the best of three attempts.
func TestSourceTimeIsKept(t *testing.T) {
	const limit = 20 * time.Millisecond
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s := NewSource(testTokenizer(t), simTemplate(), SourceOptions{MaxBytes: 8 << 20, MaxTime: limit, Cache: 16 << 20})
	var p wire.Peeked
	var scr Scratch
	for _, text := range []string{"-", " ", "a ", "<", "<|im_start|", "<|im_end|>", "<|im_end|>a", `\u0041`, "e\u0301", strings.Repeat("word ", 20) + "<|im_end|>"} {
		text = strings.Repeat(text, 4<<20/len(text))
		body := []byte(`{"messages":[{"role":"user","content":"` + text + `"}],"prompt":"` + text + `"}`)
		s.maxBytes = len(body)
		if err := p.Peek(body); err != nil {
			t.Fatal(err)
		}
		for e := EndpointChat; e <= EndpointMessages; e++ {
			var note string
			took := time.Duration(math.MaxInt64)
			for try := 0; try < 3 && took > 20*limit; try++ {
				start := threadCPU(t)
				_, note = s.Ids(nil, e, body, &p, &scr)
				took = min(took, threadCPU(t)-start)
			}
			if took > 20*limit {
				t.Errorf("%.12q, endpoint %d: %v, note %q", text, e, took, note)
			}
			t.Logf("%-14.12q endpoint %d: %v, note %q", text, e, took.Round(100*time.Microsecond), note)
		}
	}
	s.cache.check(t)
}

// threadCPU returns the CPU time that the calling thread has used.
func threadCPU(t *testing.T) time.Duration {
	t.Helper()
	const thisThread = 1 // RUSAGE_THREAD, getrusage(2)
	var r syscall.Rusage
	if err := syscall.Getrusage(thisThread, &r); err != nil {
		t.Skipf("the CPU time of a thread cannot be read: %v", err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
