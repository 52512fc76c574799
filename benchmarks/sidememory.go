package benchmarks

import "fmt"

func memoryName(streams int) string { return fmt.Sprintf("%d streams", streams) }

// memorySubject compares resident memory a stream, from before the first of them.
func memorySubject(r Records, rivals []string) Subject {
	s := Subject{Title: "Memory per open stream", About: "Resident memory less that before the first stream, by streams; one token a second each.", Rivals: rivals, Ours: []string{r.Meta.Candidate}}
	m := measureOf{figure: figureMemory, unit: "KB"}
	for _, want := range stepsOf(r) {
		ours, failed := heldBy(r, r.Meta.Candidate, want)
		if len(ours) == 0 {
			continue
		}
		own := spreadOf(inOrder(ours))
		l := Line{What: m.figure + ", " + memoryName(want), Ours: m.show(own) + failed}
		for _, rival := range rivals {
			theirs, failed := heldBy(r, rival, want)
			l.Cells = append(l.Cells, m.compare(ours, theirs)+failed)
		}
		if b, ok := bars[[2]string{memoryName(want), m.figure}]; ok {
			l.Bar = b.text(m.unit) + ": " + string(b.judge(own, nil))
		}
		s.Lines = append(s.Lines, l)
	}
	return s
}

// stepsOf lists the numbers of streams that were held, ascending as they were.
func stepsOf(r Records) (out []int) {
	seen := make(map[int]bool)
	for _, x := range r.Memory {
		if !seen[x.Streams.Want] {
			seen[x.Streams.Want] = true
			out = append(out, x.Streams.Want)
		}
	}
	return out
}

// heldBy returns KB a stream by round, and a remark when streams failed: a proxy that holds fewer needs less.
func heldBy(r Records, name string, want int) (by map[int]float64, failed string) {
	by = make(map[int]float64)
	for _, x := range r.Memory {
		if x.Target != name || x.Streams.Want != want {
			continue
		}
		by[x.Round] = x.perStream() / 1e3
		if x.Streams.Live != int64(want) || x.Streams.Errors > 0 {
			failed = fmt.Sprintf(" (%d of %d run: %s)", x.Streams.Live, want, cell(x.Streams.First))
		}
	}
	return by, failed
}
