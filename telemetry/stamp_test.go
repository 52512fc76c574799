package telemetry

import (
	"encoding/json"
	"testing"
)

func TestStampReadsWhatItWrites(t *testing.T) {
	t.Parallel()
	for _, s := range []Stamp{0, 1, 1_700_000_000_123, -1} {
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		got := Stamp(7)
		if err := json.Unmarshal(text, &got); err != nil || got != s || string(s.AppendJSON([]byte("x"))) != "x"+string(text) {
			t.Errorf("%d is written as %s and read as %d (%v)", s, text, got, err)
		}
	}
	got := Stamp(7)
	if err := json.Unmarshal([]byte("null"), &got); err != nil || got != 7 {
		t.Errorf("null: %d, %v", got, err)
	}
	for _, bad := range []string{`""`, `"today"`, `5`} {
		if err := json.Unmarshal([]byte(bad), &got); err == nil {
			t.Errorf("%s is read as %d", bad, got)
		}
	}
}
