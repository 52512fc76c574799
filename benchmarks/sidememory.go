package benchmarks

import (
	"fmt"
	"slices"
	"strings"
)

func memoryName(streams int) string { return fmt.Sprintf("%d streams", streams) }

// memorySubject compares resident memory a stream, from before the first of them.
func memorySubject(r Records, rivals []string) Subject {
	s := Subject{Title: "Memory per open stream", About: "Resident memory less that before the first stream, by streams; one token a second each.", Rivals: rivals, Ours: []string{r.Meta.Candidate}}
	m := measureOf{figure: figureMemory, unit: "KB"}
	for _, want := range stepsOf(r) {
		ours, fell := heldBy(r, r.Meta.Candidate, want)
		own := spreadOf(inOrder(ours))
		l := Line{What: m.figure + ", " + memoryName(want), Ours: string(NotMeasured) + fell}
		if own.N > 0 {
			l.Ours = m.show(own) + fell
		}
		for _, rival := range rivals {
			theirs, fewer := heldBy(r, rival, want)
			l.Cells = append(l.Cells, m.compare(ours, theirs, fell+fewer != "")+fewer)
		}
		var asked []string
		for _, b := range barsOf(memoryName(want), m.figure, r.Meta.Candidate) {
			v := b.judge(own, nil)
			if fell != "" {
				v = NotMet
			}
			asked = append(asked, b.text(m.unit)+": "+string(v))
		}
		l.Bar = strings.Join(asked, "; ")
		s.Lines = append(s.Lines, l)
	}
	return s
}

// stepsOf lists the numbers of streams that were held, ascending as they were, and that of the bar also where it was not
// reached: a bar that nobody looked at has to be seen.
func stepsOf(r Records) (out []int) {
	for _, x := range r.Memory {
		if !slices.Contains(out, x.Streams.Want) {
			out = append(out, x.Streams.Want)
		}
	}
	if !slices.Contains(out, boundAtStreams) {
		out = append(out, boundAtStreams)
	}
	return out
}

// heldBy returns KB a stream by round, and a remark when streams failed: a proxy that holds fewer needs less, and one that
// holds none has no figure.
func heldBy(r Records, name string, want int) (by map[int]float64, failed string) {
	by = make(map[int]float64)
	for _, x := range r.Memory {
		if x.Target != name || x.Streams.Want != want {
			continue
		}
		if x.Streams.Live > 0 {
			by[x.Round] = x.perStream() / 1e3
		}
		if x.Streams.Live != int64(want) || x.Streams.Errors > 0 {
			failed = fmt.Sprintf(" (%d of %d run: %s)", x.Streams.Live, want, cell(x.Streams.First))
		}
	}
	return by, failed
}
