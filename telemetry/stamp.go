package telemetry

import (
	"fmt"
	"time"
)

// Stamp is a time in Unix milliseconds, as those who have no clock carry it.
type Stamp int64

// MarshalJSON implements json.Marshaler: RFC 3339 with milliseconds, UTC.
func (s Stamp) MarshalJSON() ([]byte, error) { return s.AppendJSON(nil), nil }

// AppendJSON appends what MarshalJSON returns.
func (s Stamp) AppendJSON(dst []byte) []byte {
	return append(appendTime(append(dst, '"'), time.UnixMilli(int64(s))), '"')
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Stamp) UnmarshalJSON(text []byte) error {
	if string(text) == "null" { // by convention, no change
		return nil
	}
	var t time.Time
	if err := t.UnmarshalJSON(text); err != nil {
		return fmt.Errorf("cannot read a time: %w", err)
	}
	*s = Stamp(t.UnixMilli())
	return nil
}
