package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"
)

// explanation is what of CONTRACT section 4 is printed.
type explanation struct {
	RequestID *string `json:"request_id"`
	Path      string  `json:"path"`
	Model     *string `json:"model"`
	Session   *string `json:"session"`
	Tokens    int     `json:"prompt_tokens"`
	Keys      string  `json:"keys"`
	KeysNote  *string `json:"keys_note"`
	Cap       *int    `json:"output_cap"`
	Expected  *int    `json:"expected_output_tokens"`
	Handoff   bool    `json:"handoff"`
	Policy    string  `json:"policy"`

	Candidates []candidate `json:"candidates"`
	Engine     string      `json:"engine"`
	Reason     string      `json:"reason"`
	RunnerUp   *string     `json:"runner_up"`
	Margin     float64     `json:"margin_s"`
	Forgone    int         `json:"forgone_tokens"`
	Shadow     *struct {
		Engine    *string `json:"engine"`
		Agreement string  `json:"agreement"`
	} `json:"shadow"`
	Attempts []struct {
		Engine  string `json:"engine"`
		Outcome string `json:"outcome"`
	} `json:"attempts"`
}

type candidate struct {
	Engine   string   `json:"engine"`
	Profile  string   `json:"profile"`
	State    string   `json:"state"`
	Trust    string   `json:"trust"`
	Usable   bool     `json:"usable"`
	Note     *string  `json:"note"`
	Match    int      `json:"match_tokens"`
	InFlight int      `json:"match_in_flight_tokens"`
	Uncached *int     `json:"uncached_tokens"`
	Wait     *float64 `json:"wait_s"`
	Prefill  *float64 `json:"prefill_s"`
	Decode   *float64 `json:"decode_s"`
	Cost     *float64 `json:"cost_s"`
}

// columns is the width that is printed for.
const columns = 100

// print writes the request, one row per engine with the deciding term marked,
// and one sentence of why.
func (x *explanation) print(out io.Writer) {
	sentence(out, fmt.Sprintf("%s  model %s, %d prompt tokens (keys %s%s), output %s", x.Path, orDash(x.Model), x.Tokens, x.Keys, x.note(), x.output()))
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\tengine\tprofile\tstate\ttrust\tmatch\tto compute\twait\tprefill\tdecode\tcost")
	for i := range x.Candidates {
		c := &x.Candidates[i]
		mark := ""
		if c.Engine == x.Engine {
			mark = ">"
		}
		if !c.Usable {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t-\t-\t-\t-\t-\n", mark, c.Engine, c.Profile, c.State, c.Trust, c.Match)
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", mark, c.Engine, c.Profile, c.State, c.Trust,
			x.star(c, "match", c.matched()), count(c.Uncached), x.star(c, "wait", seconds(c.Wait)),
			seconds(c.Prefill), x.star(c, "profile", seconds(c.Decode)), seconds(c.Cost))
	}
	_ = w.Flush()
	fmt.Fprintln(out)
	for i := range x.Candidates {
		if c := &x.Candidates[i]; c.Note != nil {
			sentence(out, c.Engine+": "+*c.Note+".")
		}
	}
	sentence(out, x.why())
	if x.Shadow != nil && x.Shadow.Engine != nil && x.Shadow.Agreement == "would-move" {
		sentence(out, "The other way of matching would have chosen "+*x.Shadow.Engine+".")
	}
	if len(x.Attempts) > 0 {
		var tried []string
		for _, a := range x.Attempts {
			tried = append(tried, a.Engine+" ("+a.Outcome+")")
		}
		sentence(out, "Tried: "+strings.Join(tried, ", ")+".")
	}
}

// sentence prints text in lines of at most columns, broken at blanks. What is
// not printable is replaced: some of it is a client's.
func sentence(out io.Writer, text string) {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
	for utf8.RuneCountInString(text) > columns {
		room := len(string([]rune(text)[:columns+1]))
		at := strings.LastIndexByte(text[:room], ' ')
		if at <= 0 {
			break // one long word
		}
		fmt.Fprintln(out, strings.TrimRight(text[:at], " "))
		text = "  " + strings.TrimLeft(text[at:], " ")
		if !strings.Contains(text[2:], " ") {
			break
		}
	}
	fmt.Fprintln(out, text)
}

// star marks the winner's deciding term.
func (x *explanation) star(c *candidate, term, text string) string {
	if c.Engine == x.Engine && term != "" && term == termOf[x.Reason] {
		return text + "*"
	}
	return text
}

// termOf is the column that a reason speaks of.
var termOf = map[string]string{"exact": "match", "approximate": "match", "single-flight": "match", "load": "wait", "profile": "profile"}

// reasons say in words why an engine won.
var reasons = map[string]string{
	"exact":           "it holds more of the prompt in its cache, by its own events",
	"approximate":     "it holds more of the prompt in its cache, by what its answers left there",
	"single-flight":   "the prompt's beginning is being computed there for another request",
	"load":            "it has less to do",
	"profile":         "its way of decoding suits the answer's length",
	"session":         "the session belongs there",
	"stored-response": "it made the response that the request continues",
	"rotation":        "all costs are equal and it was its turn",
	"only-one":        "no other engine is usable",
	"fail-open":       "no engine is usable, so any that may answer is tried",
}

func (x *explanation) why() string {
	text := fmt.Sprintf("%s, because %s (%s", x.Engine, reasons[x.Reason], x.Reason)
	if x.RunnerUp != nil {
		text += fmt.Sprintf("; %s before %s", span(x.Margin), *x.RunnerUp)
	}
	text += ")"
	if x.Forgone > 0 {
		text += fmt.Sprintf(", giving up %d cached tokens elsewhere", x.Forgone)
	}
	if x.Handoff {
		text += "; its token ids go with it"
	}
	return text + "."
}

func (x *explanation) note() string {
	if x.KeysNote == nil {
		return ""
	}
	return ": " + *x.KeysNote
}

func (x *explanation) output() string {
	switch {
	case x.Expected == nil:
		return "none"
	case x.Cap == nil:
		return fmt.Sprintf("about %d tokens, no cap", *x.Expected)
	}
	return fmt.Sprintf("about %d tokens, cap %d", *x.Expected, *x.Cap)
}

func (c *candidate) matched() string {
	if c.InFlight > c.Match {
		return fmt.Sprintf("%d+%d", c.Match, c.InFlight-c.Match)
	}
	return fmt.Sprint(c.Match)
}

func orDash(s *string) string {
	if s == nil {
		return "-"
	}
	return *s
}

func count(n *int) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}

func seconds(v *float64) string {
	if v == nil {
		return "-"
	}
	return span(*v)
}

// span writes seconds in three digits.
func span(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f s", v)
	case v >= 1 || v <= -1:
		return fmt.Sprintf("%.2f s", v)
	}
	return fmt.Sprintf("%.0f ms", v*1000)
}
