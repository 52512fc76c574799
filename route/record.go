package route

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"ramjet/telemetry"
)

// recordVersion is the form of a record. One of another form is refused: what
// it means might have changed.
const recordVersion = 1

// maxRecordText bounds a client's text in a record, in bytes: none is longer
// unless somebody wants to fill a disk.
const maxRecordText = 256

// AppendRecord appends the explanation as one line of JSON without its line
// end: what users are shown, and what is needed to decide again. It holds no
// text of a prompt and no key of a block, and allocates nothing once dst has
// room.
func (x *Explanation) AppendRecord(dst []byte) []byte {
	w := writer{dst}
	w.raw(`{"v":`).int(recordVersion)
	w.raw(`,"request_id":`).text(string(x.RequestID)).raw(`,"time":`).stamp(x.Time)
	w.raw(`,"path":`).text(string(x.Path)).raw(`,"model":`).text(string(x.Model)).raw(`,"dialect":`).text(string(x.Dialect))
	w.raw(`,"stream":`).bool(x.Stream).raw(`,"session":`).hash(x.Session)
	w.raw(`,"prompt_tokens":`).count(int64(x.PromptTokens)).raw(`,"keys":`).text(string(x.Keys)).raw(`,"keys_note":`).text(string(x.KeysNote))
	w.raw(`,"output_cap":`).count(int64(x.OutputCap)).raw(`,"expected_output_tokens":`).count(int64(x.ExpectedOutput)).raw(`,"handoff":`).bool(x.Handoff)
	w.raw(`,"policy":`).text(string(x.Policy))
	w.raw(`,"cohort":{"percent":`).float(x.Cohort.Percent).raw(`,"in":`).bool(x.Cohort.In).raw(`,"place":`).float(x.basis.place).raw(`}`)
	w.raw(`,"candidates":[`)
	for i := range x.Candidates {
		w.comma(i)
		w.candidate(&x.Candidates[i])
	}
	w.raw(`],"engine":`).text(string(x.Engine)).raw(`,"reason":`).text(string(x.Reason)).raw(`,"runner_up":`).text(string(x.RunnerUp))
	w.raw(`,"margin_s":`).float(x.Margin).raw(`,"forgone_tokens":`).int(x.ForgoneTokens)
	w.raw(`,"shadow":`).shadow(&x.Shadow)
	w.raw(`,"attempts":[`)
	for i := range x.Attempts {
		w.comma(i)
		w.raw(`{"engine":`).text(x.Attempts[i].Engine).raw(`,"outcome":`).text(x.Attempts[i].Outcome).raw(`}`)
	}
	w.raw(`],"result":`).result(&x.Result)
	w.basis(&x.basis)
	w.raw(`}`)
	return w.b
}

// writer appends JSON.
type writer struct{ b []byte }

func (w *writer) raw(s string) *writer { w.b = append(w.b, s...); return w }

func (w *writer) int(n int64) *writer { w.b = strconv.AppendInt(w.b, n, 10); return w }

func (w *writer) bool(v bool) *writer { w.b = strconv.AppendBool(w.b, v); return w }

// stamp writes as telemetry.Stamp marshals.
func (w *writer) stamp(s telemetry.Stamp) *writer {
	w.b = s.AppendJSON(w.b)
	return w
}

func (w *writer) comma(i int) {
	if i > 0 {
		w.b = append(w.b, ',')
	}
}

// count writes null for what is below 0, as Count marshals.
func (w *writer) count(n int64) *writer {
	if n < 0 {
		return w.raw("null")
	}
	return w.int(n)
}

// float writes the shortest text that reads back as v.
func (w *writer) float(v float64) *writer {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return w.raw("null")
	}
	w.b = strconv.AppendFloat(w.b, v, 'g', -1, 64)
	return w
}

// seconds writes null for what is below 0, as Seconds marshals.
func (w *writer) seconds(v float64) *writer {
	if v < 0 {
		return w.raw("null")
	}
	return w.float(v)
}

func (w *writer) hash(h Hash) *writer {
	if h == 0 {
		return w.raw("null")
	}
	w.b = append(w.b, '"')
	for i := range 16 {
		w.b = append(w.b, "0123456789abcdef"[h>>(60-4*i)&15])
	}
	w.b = append(w.b, '"')
	return w
}

// text writes null for an empty text, as Word marshals, and no more than its
// first bytes.
func (w *writer) text(s string) *writer {
	if s == "" {
		return w.raw("null")
	}
	w.b = append(w.b, '"')
	for from := 0; from < len(s) && from < maxRecordText; {
		r, n := utf8.DecodeRuneInString(s[from:])
		switch {
		case r == utf8.RuneError && n == 1:
			w.b = append(w.b, `\ufffd`...)
		case r == '"' || r == '\\':
			w.b = append(w.b, '\\', byte(r))
		case r < ' ' || r == 0x7f || r == '\u2028' || r == '\u2029': // they end a line somewhere
			w.b = append(w.b, '\\', 'u')
			for shift := 12; shift >= 0; shift -= 4 {
				w.b = append(w.b, "0123456789abcdef"[r>>shift&15])
			}
		default:
			w.b = append(w.b, s[from:from+n]...)
		}
		from += n
	}
	w.b = append(w.b, '"')
	return w
}

func (w *writer) candidate(c *Candidate) {
	w.raw(`{"engine":`).text(c.Engine).raw(`,"profile":`).profile(c.Profile)
	w.raw(`,"state":`).text(c.State.String()).raw(`,"trust":`).text(c.Trust.String())
	w.raw(`,"usable":`).bool(c.Usable).raw(`,"note":`).text(c.Note)
	w.raw(`,"match_tokens":`).int(c.Match).raw(`,"match_exact_tokens":`).int(c.MatchExact)
	w.raw(`,"match_approximate_tokens":`).int(c.MatchApproximate).raw(`,"match_in_flight_tokens":`).int(c.MatchInFlight)
	w.raw(`,"uncached_tokens":`).count(c.known(c.Uncached)).raw(`,"queue_tokens":`).count(c.known(c.QueueTokens))
	w.raw(`,"prefill_requests":`).int(int64(c.PrefillRequests)).raw(`,"decode_requests":`).int(int64(c.DecodeRequests))
	w.raw(`,"prefill_tokens_per_s":`).float(c.PrefillRate).raw(`,"seconds_per_token":`).seconds(float64(c.weighed(c.SecondsPerToken)))
	w.raw(`,"wait_s":`).seconds(float64(c.weighed(c.Wait))).raw(`,"prefill_s":`).seconds(float64(c.weighed(c.Prefill)))
	w.raw(`,"decode_s":`).seconds(float64(c.weighed(c.Decode))).raw(`,"delay_s":`).seconds(float64(c.weighed(c.Delay)))
	w.raw(`,"cost_s":`).seconds(float64(c.weighed(c.Cost)))
	w.raw(`,"lease_tokens":`).int(c.tokens)
	if c.Usable {
		w.raw(`,"batch":`).float(c.batch).raw(`,"decoding":`).float(c.decoding).raw(`,"remaining_tokens":`).float(c.remaining)
		w.raw(`,"mean_seconds_per_token":`).float(c.meanStep).raw(`,"added_seconds_per_token":`).float(c.stepGrowth)
	}
	w.raw(`}`)
}

// profile writes a profile as it is: an engine may have none.
func (w *writer) profile(s string) *writer {
	if s == "" {
		return w.raw(`""`)
	}
	return w.text(s)
}

func (w *writer) shadow(s *Shadow) {
	if s.Agreement == telemetry.AgreementNone {
		w.raw("null")
		return
	}
	w.raw(`{"engine":`).text(s.Engine).raw(`,"reason":`).text(s.Reason.String()).raw(`,"agreement":`).text(s.Agreement.String()).raw(`}`)
}

func (w *writer) result(r *Result) {
	if !r.Ended {
		w.raw("null")
		return
	}
	w.raw(`{"status":`).int(int64(r.Status)).raw(`,"end":`).profile(r.End.String())
	w.raw(`,"prompt_tokens":`).count(r.PromptTokens).raw(`,"cached_tokens":`).count(r.CachedTokens).raw(`,"output_tokens":`).count(r.OutputTokens)
	w.raw(`,"route_s":`).seconds(r.RouteSeconds).raw(`,"ttft_s":`).seconds(r.TTFTSeconds).raw(`,"duration_s":`).seconds(r.DurationSecond).raw(`}`)
}

func (w *writer) basis(b *basis) {
	w.raw(`,"rotation":`).int(int64(b.turn)).raw(`,"rotated":`).bool(b.rotated).raw(`,"light":`).bool(b.light).raw(`,"fail_open":`).bool(b.open) //nolint:gosec // a counter of requests
	w.raw(`,"answer_tokens":`).float(b.length).raw(`,"sequences":`).int(b.sequences).raw(`,"stored":`).text(b.stored)
	w.raw(`,"ids_known":`).bool(b.known).raw(`,"keyed":`).bool(b.keyed)
	s := b.settings
	if s == nil {
		w.raw(`,"settings":null`)
		return
	}
	w.raw(`,"settings":{"policy":`).text(string(s.Policy)).raw(`,"profile":`).text(string(s.Profile)).raw(`,"profile_threshold":`).int(s.Threshold)
	w.raw(`,"exact":`).text(exactWords[s.Exact]).raw(`,"percent":`).float(s.Percent)
	w.raw(`,"tie_s":`).float(s.Tie).raw(`,"delay_weight":`).float(s.DelayWeight).raw(`}`)
}

// exactWords name the ways of Exact in records.
var exactWords = [...]string{ExactPercent: "percent", ExactShadow: "shadow", ExactOff: "off"}

var errNoRecord = errors.New("it is no record of a decision")

// ReadRecord reads a line that AppendRecord wrote.
func ReadRecord(line []byte) (*Record, error) {
	var in recorded
	if err := json.Unmarshal(line, &in); err != nil {
		return nil, fmt.Errorf("cannot read a record: %w", err)
	}
	if in.Version == 0 || in.Settings == nil {
		return nil, fmt.Errorf("cannot read a record: %w", errNoRecord)
	}
	if in.Version != recordVersion {
		return nil, fmt.Errorf("cannot read a record of form %d, only of form %d", in.Version, recordVersion)
	}
	return in.record()
}
