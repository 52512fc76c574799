package engine

import (
	"context"
	"net/url"
	"testing"
	"time"

	"ramjet/telemetry"
)

// TestSettingsAreReplaced: what is read holds what was set last, and a value
// that was read stays.
func TestSettingsAreReplaced(t *testing.T) {
	t.Parallel()
	e := New(Options{Name: "a", URL: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}, Profile: "mtp", APIKey: "one", InFlight: 3, SlowStart: time.Hour})
	was := e.Settings()
	e.SetState(telemetry.StateSlowStart, "test")
	if r := e.Ramp(); r > 0.2 {
		t.Errorf("the ramp begins at %v", r)
	}
	e.SetSettings(Settings{APIKey: "two"})
	if was.APIKey != "one" || was.InFlight != 3 || was.Profile != "mtp" || was.Dial != time.Second {
		t.Errorf("what was read changed: %+v", was)
	}
	if now := e.Settings(); now.APIKey != "two" || now.InFlight != 0 || now.Dial != time.Second {
		t.Errorf("%+v", now)
	}
	if r := e.Ramp(); r != 1 {
		t.Errorf("without a slow start the ramp is %v", r)
	}
}

// TestDialLimitIsLive: a pool that exists dials by the new limit.
func TestDialLimitIsLive(t *testing.T) {
	t.Parallel()
	e := New(Options{Name: "a", URL: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}, Dial: time.Hour})
	for want, d := range map[time.Duration]time.Duration{time.Hour: time.Hour, time.Minute: time.Minute, 0: -1} {
		e.SetSettings(Settings{Dial: d})
		ctx, cancel := e.Pool().limit(context.Background())
		deadline, limited := ctx.Deadline()
		cancel()
		if left := time.Until(deadline); limited != (want > 0) || limited && (left > want || left < want-time.Minute/2) {
			t.Errorf("dial %s: limited %v to %s", d, limited, left)
		}
	}
}
