package cli

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/width"
)

// topColumn is one column of a table, shown from a width of the terminal on.
type topColumn struct {
	title string
	cells int
	right bool
	from  int
}

// tableOf sets rows under their titles. The first column of a table takes what
// is left of the width, up to 32 cells, which is the longest name of an engine.
func tableOf(columns []topColumn, rows [][]string, cells int) []string {
	spare := cells
	for _, c := range columns {
		if cells >= c.from {
			spare -= c.cells + 1
		}
	}
	titles := make([]string, len(columns))
	for i, c := range columns {
		titles[i] = c.title
	}
	var out []string
	for _, row := range append([][]string{titles}, rows...) {
		var b strings.Builder
		for i, c := range columns {
			if cells < c.from {
				continue
			}
			room := c.cells
			if i == 0 && !c.right && c.title == "ENGINE" {
				room = min(room+max(spare+1, 0), 32)
			}
			text := fit(row[i], room)
			pad := strings.Repeat(" ", room-cellsOf(text))
			if b.Len() > 0 {
				b.WriteByte(' ')
			}
			if c.right {
				b.WriteString(pad + text)
			} else {
				b.WriteString(text + pad)
			}
		}
		out = append(out, fit(strings.TrimRight(b.String(), " "), cells))
	}
	return out
}

// fit makes a text safe and cuts it to room cells. What a terminal would act
// upon, or that has no width of its own, becomes a question mark: names of
// models and ids of requests are other people's.
func fit(text string, room int) string {
	var b strings.Builder
	used, end, fits := 0, 0, 0
	for _, r := range text {
		if !unicode.IsPrint(r) || unicode.Is(unicode.M, r) || r == unicode.ReplacementChar {
			r = '?'
		}
		n := runeCells(r)
		if used+n > room {
			// Two dots say that something is missing, where there is room for them.
			if fits+2 <= room {
				return b.String()[:end] + ".."
			}
			return b.String()[:end]
		}
		b.WriteRune(r)
		used += n
		if used <= room-2 || room < 4 {
			end, fits = b.Len(), used
		}
	}
	return b.String()
}

// cellsOf is how wide a text made by fit is.
func cellsOf(text string) (n int) {
	for _, r := range text {
		n += runeCells(r)
	}
	return n
}

// runeCells goes by Unicode's East Asian width (UAX 11); terminals draw wide
// and full-width characters over two cells.
func runeCells(r rune) int {
	if r < 0x1100 {
		return 1
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	default:
		return 1
	}
}

// figure writes a number in at most five characters, "-" if unknown.
func figure(v *float64) string {
	if v == nil {
		return "-"
	}
	switch x := math.Abs(*v); {
	case x >= 1e10:
		return fmt.Sprintf("%.0fG", *v/1e9)
	case x >= 1e7:
		return fmt.Sprintf("%.0fM", *v/1e6)
	case x >= 9.95e5:
		return fmt.Sprintf("%.1fM", *v/1e6)
	case x >= 1e4:
		return fmt.Sprintf("%.0fk", *v/1e3)
	case x >= 1e3:
		return fmt.Sprintf("%.1fk", *v/1e3)
	case x >= 10 || x == math.Trunc(x):
		return fmt.Sprintf("%.0f", *v)
	case x < 0.1:
		return fmt.Sprintf("%.2f", *v)
	}
	return fmt.Sprintf("%.1f", *v)
}

func countOr(n *int) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}

func percent(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f %%", *v*100)
}

// shareOf is part of whole in brackets, nothing if either is unknown or none.
func shareOf(part, whole *float64) string {
	if part == nil || whole == nil || *whole <= 0 {
		return ""
	}
	v := *part / *whole
	return " (" + percent(&v) + ")"
}

// perToken writes a time of milliseconds with a digit behind the point.
func perToken(v *float64) string {
	if v == nil || *v >= 0.1 {
		return seconds(v)
	}
	return fmt.Sprintf("%.1f ms", *v*1000)
}

// age writes a duration by its two greatest units.
func age(d time.Duration) string {
	s := max(int64(d.Seconds()), 0)
	switch {
	case s >= 86400:
		return fmt.Sprintf("%dd%dh", s/86400, s%86400/3600)
	case s >= 3600:
		return fmt.Sprintf("%dh%dm", s/3600, s%3600/60)
	case s >= 60:
		return fmt.Sprintf("%dm%ds", s/60, s%60)
	}
	return fmt.Sprintf("%ds", s)
}

// sum adds what is known.
type sum struct {
	total, most float64
	n           int
}

func (s *sum) add(v *float64) {
	if v == nil {
		return
	}
	if s.n == 0 || *v > s.most {
		s.most = *v
	}
	s.total += *v
	s.n++
}

func (s *sum) mean() *float64 {
	if s.n == 0 {
		return nil
	}
	v := s.total / float64(s.n)
	return &v
}

func (s *sum) whole(unit float64) string {
	if s.n == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f", s.total/unit)
}

func (s *sum) highest() string {
	if s.n == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f", s.most)
}
