package telemetry

import "time"

// throttleWindow is how long a key stays quiet after a line.
const throttleWindow = 10 * time.Second

// maxThrottled bounds the keys remembered at once; beyond it all further keys
// share one.
const maxThrottled = 1024

// throttle is one key inside its window.
type throttle struct {
	level    Level
	msg      string
	kv       []any
	repeated int
	timer    *time.Timer
}

// Throttled writes a line at once if nothing was written under key for ten
// seconds. Further ones are only counted, and the last of them is written
// with the field "repeated" when the window ends. Use it for whatever a client
// or an engine can cause as often as it likes.
func (l *Log) Throttled(key string, level Level, msg string, kv ...any) {
	if !l.Enabled(level) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.throttled[key] == nil && len(l.throttled) >= maxThrottled {
		key = ""
	}
	if t := l.throttled[key]; t != nil {
		t.level, t.msg, t.kv = level, msg, kv
		t.repeated++
		return
	}
	t := &throttle{}
	t.timer = time.AfterFunc(throttleWindow, func() { l.endWindow(key, t) })
	l.throttled[key] = t
	l.write(level, msg, kv)
}

// endWindow tells what was held back and, if there was something, opens the
// next window, so that a steady fault gives one line per window.
func (l *Log) endWindow(key string, t *throttle) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.throttled[key] != t {
		return
	}
	if t.repeated == 0 {
		delete(l.throttled, key)
		return
	}
	l.tellRepeated(t)
	t.timer.Reset(throttleWindow)
}

func (l *Log) tellRepeated(t *throttle) {
	l.write(t.level, t.msg, append(t.kv[:len(t.kv):len(t.kv)], "repeated", t.repeated))
	t.repeated, t.kv = 0, nil
}

// flushThrottled tells what every open window holds back and closes it.
func (l *Log) flushThrottled() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, t := range l.throttled {
		t.timer.Stop()
		if t.repeated > 0 {
			l.tellRepeated(t)
		}
		delete(l.throttled, key)
	}
}
