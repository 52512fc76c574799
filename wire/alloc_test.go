//go:build !race

package wire

import "testing"

func TestHeadsAllocateNothing(t *testing.T) {
	request, response := []byte(sdkRequest), []byte(streamResponse)
	var q RequestHead
	var r ResponseHead
	n := testing.AllocsPerRun(200, func() {
		q.Reset()
		r.Reset()
		if _, err := q.Parse(request); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Parse(response); err != nil {
			t.Fatal(err)
		}
		if q.Get("x-stainless-os") == nil || q.HopByHop([]byte("X-Stainless-Os")) || r.UntilClose(q.Method) {
			t.Fatal("wrong answers")
		}
	})
	if n != 0 {
		t.Errorf("%v allocations per request", n)
	}
}

func TestRelayAllocatesNothing(t *testing.T) {
	raw := streamRead(16)
	var chunks ChunkScanner
	var events EventScanner
	var info EventInfo
	n := testing.AllocsPerRun(200, func() {
		if got := relayRead(raw, &chunks, &events, &info); got != 16 {
			t.Fatalf("%d events", got)
		}
		// The same in reads of 100 bytes, so that every event needs the
		// side buffer.
		got := 0
		for at := 0; at < len(raw); at += 100 {
			got += relayRead(raw[at:min(at+100, len(raw))], &chunks, &events, &info)
		}
		if got != 16 {
			t.Fatalf("%d events in small reads", got)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations per read of 16 events", n)
	}
}

func TestClassifyAllocatesNothing(t *testing.T) {
	var info EventInfo
	var answer AnswerInfo
	for _, s := range samples {
		event := []byte(s.event)
		if n := testing.AllocsPerRun(50, func() { ClassifyEvent(s.d, event, &info) }); n != 0 {
			t.Errorf("%s: %v allocations", s.name, n)
		}
	}
	for _, a := range answers {
		body := []byte(a.body)
		if n := testing.AllocsPerRun(50, func() { ClassifyAnswer(a.d, body, &answer) }); n != 0 {
			t.Errorf("%s: %v allocations", a.name, n)
		}
	}
}
