package telemetry

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// Level is the weight of a log line.
type Level uint8

// The levels of a log, from chatty to quiet.
const (
	LevelDebug Level = iota
	LevelInfo
	LevelWarn
	LevelError
	levelCount
)

var levelWords = [levelCount]string{"debug", "info", "warn", "error"}

// String returns the level's word.
func (l Level) String() string { return word(levelWords[:], int(l)) }

// ParseLevel reads a level's word.
func ParseLevel(s string) (Level, error) {
	for i, w := range levelWords {
		if w == s {
			return Level(i), nil
		}
	}
	return LevelInfo, fmt.Errorf("cannot read log level %q: it is one of %s", s, strings.Join(levelWords[:], ", "))
}

// Log is the process log: lines for people and machines about what changed,
// never one per request (that is AccessLog). It is safe for concurrent use
// and never blocks on its reader. A nil Log writes nothing.
type Log struct {
	w       *LogWriter
	json    zerolog.Logger
	level   Level
	console bool

	mu        sync.Mutex // guards throttled
	throttled map[string]*throttle
}

// NewLog returns a log on w from a level on; format as for NewAccessLog, and
// both may share one *LogWriter.
func NewLog(w io.Writer, level Level, format string) *Log {
	lw := NewLogWriter(w)
	return &Log{w: lw, json: zerolog.New(lw), level: level, console: consoleFormat(lw.w, format),
		throttled: make(map[string]*throttle)}
}

// Close writes what is pending.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	l.flushThrottled()
	return l.w.Close()
}

// Enabled reports whether lines of a level are written.
func (l *Log) Enabled(level Level) bool { return l != nil && level >= l.level }

// Debug writes a line with key and value pairs.
func (l *Log) Debug(msg string, kv ...any) { l.write(LevelDebug, msg, kv) }

// Info writes a line with key and value pairs.
func (l *Log) Info(msg string, kv ...any) { l.write(LevelInfo, msg, kv) }

// Warn writes a line with key and value pairs.
func (l *Log) Warn(msg string, kv ...any) { l.write(LevelWarn, msg, kv) }

// Error writes a line with key and value pairs.
func (l *Log) Error(msg string, kv ...any) { l.write(LevelError, msg, kv) }

func (l *Log) write(level Level, msg string, kv []any) {
	if !l.Enabled(level) {
		return
	}
	if len(kv)%2 != 0 {
		panic("BUG: log fields are not in pairs: " + msg)
	}
	if l.console {
		l.writeConsole(level, msg, kv)
		return
	}
	var stamp [32]byte
	e := l.json.Log()
	e.Bytes("time", appendTime(stamp[:0], time.Now()))
	e.Str("level", level.String())
	for i := 0; i < len(kv); i += 2 {
		field(e, kv[i].(string), kv[i+1])
	}
	e.Msg(msg)
}

// stackKey is the field that holds where a panic happened. It came from no
// client, and its first lines tell only how it was caught.
const stackKey, maxStack = "stack", 8 << 10

// textLimit bounds in bytes the text of a field.
func textLimit(key string) int {
	if key == stackKey {
		return maxStack
	}
	return maxText
}

// field writes values by type; texts are cut, since some came from outside.
func field(e *zerolog.Event, key string, v any) {
	switch v := v.(type) {
	case nil:
		e.RawJSON(key, null)
	case bool:
		e.Bool(key, v)
	case int:
		e.Int(key, v)
	case int64:
		e.Int64(key, v)
	case uint64:
		e.Uint64(key, v)
	case float64:
		e.Float64(key, v)
	case []string:
		e.Strs(key, v)
	default:
		e.RawJSON(key, textOf(nil, `"`, valueText(v), textLimit(key)))
	}
}

var null = []byte("null")

// valueText is the text of a value of any type. Durations keep their unit.
func valueText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []byte:
		return string(v)
	case error:
		return v.Error()
	case fmt.Stringer:
		return v.String()
	}
	return fmt.Sprint(v)
}

var levelMarks = [levelCount]string{
	colourDim + "DBG" + colourOff, colourGood + "INF" + colourOff,
	colourWarn + "WRN" + colourOff, colourBad + "ERR" + colourOff,
}

func (l *Log) writeConsole(level Level, msg string, kv []any) {
	p := lineBuffers.Get().(*[]byte)
	b := (*p)[:0]
	b = append(b, colourDim...)
	b = time.Now().AppendFormat(b, time.TimeOnly+".000")
	b = append(b, colourOff+" "...)
	b = append(b, levelMarks[level]...)
	b = append(b, ' ')
	b = append(b, msg...)
	for i := 0; i < len(kv); i += 2 {
		key := kv[i].(string)
		b = appendPlain(consoleKey(b, key), []byte(valueText(kv[i+1])), textLimit(key))
	}
	b = append(b, '\n')
	_, _ = l.w.Write(b)
	*p = b
	lineBuffers.Put(p)
}
