package policy

import (
	"fmt"
	"math/rand/v2"
)

// cell is one cell of the reference table of both decoding profiles: so many requests always under way, each with an
// answer of so many tokens.
type cell struct{ together, out int }

// cells are those of the table, 1, 8, 16 and 32 at once with 256 tokens and 32 with 512: once shared by both engines,
// once for each of them.
func cells() []cell {
	return []cell{{1, 256}, {2, 256}, {8, 256}, {16, 256}, {32, 256}, {64, 256}, {32, 512}, {64, 512}}
}

const (
	cellSeconds = 120.0
	cellPrompt  = 100 // tokens: what counts is decoding
)

// closedLoop sends the next request once the answer before is whole.
func (c cell) closedLoop(_ *traces, rng *rand.Rand, short bool) *workload {
	l := &workload{blockTokens: mooncakeBlock, until: cellSeconds / float64(shortened(short, 1, 10))}
	// No step makes more than two tokens of an answer, nor takes less than its base.
	most := int(l.until/(float64(c.out)*stepBase/2)) + 1
	for range c.together {
		jobs := make([]*job, most)
		for i := range jobs {
			jobs[i] = &job{in: cellPrompt, out: c.out, limit: int64(c.out), session: rng.Uint64()}
		}
		jobs[0].at = rng.Float64()
		l.users = append(l.users, jobs)
	}
	return l
}

// mixed prints what two unlike engines do together at each cell, beside two equal ones.
func (p *paper) mixed(b *book) error {
	p.printf("\n## The pair of unlike engines: tokens/s, and seconds from request to whole answer\n\n")
	p.printf("    %-24s %17s %17s %17s %17s %17s\n", "at once, answer", "by the rule", "learned", "in turn", "two mtp", "two standard")
	for _, c := range cells() {
		name := fmt.Sprintf("%d, %d tokens", c.together, c.out)
		line := fmt.Sprintf("    %-24s", name)
		for _, who := range []struct {
			profiles []string
			name     string
		}{
			{pair, nameDefault},
			{pair, nameLearned},
			{pair, nameOwnTurns},
			{[]string{profileMTP, profileMTP}, nameDefault},
			{[]string{profileStandard, profileStandard}, nameDefault},
		} {
			s := &scenario{name: fmt.Sprint(name, " ", who.profiles), profiles: who.profiles, make: c.closedLoop}
			speed, err := b.each(s, []string{who.name}, func(r ...*result) float64 { return r[0].throughput() * float64(c.out) })
			if err != nil {
				return err
			}
			wait, err := b.each(s, []string{who.name}, func(r ...*result) float64 { return r[0].meanE2E() })
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %9.0f %7.2f", speed, wait)
		}
		p.printf("%s\n", line)
	}
	return nil
}
