package policy

import (
	"bufio"
	"compress/gzip"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"time"

	"ramjet/radix"
)

// workload is what one run plays.
type workload struct {
	blockTokens int
	jobs        []*job   // by arrival
	users       [][]*job // closed loops
	until       float64  // seconds, of closed loops
}

// keys are the keys of the prompt's full blocks in the index, made once. A block's ids are its content's word and zeros:
// equal words are equal ids.
func (j *job) keys(size int) []uint64 {
	if len(j.chain) == len(j.words) {
		return j.chain
	}
	j.chain = make([]uint64, 0, len(j.words))
	parent := radix.Root("", "", "")
	if j.like != nil {
		theirs := j.like.keys(size)
		for len(j.chain) < min(len(theirs), len(j.words)) && j.words[len(j.chain)] == j.like.words[len(j.chain)] {
			parent = theirs[len(j.chain)]
			j.chain = append(j.chain, parent)
		}
	}
	ids := make([]uint32, size)
	for _, word := range j.words[len(j.chain):] {
		ids[0], ids[1] = uint32(word), uint32(word>>32) //nolint:gosec // the two halves
		parent = radix.Key(parent, ids)
		j.chain = append(j.chain, parent)
	}
	return j.chain
}

// open reads a compressed trace.
func open(dir, name string, read func(io.Reader) error) (err error) {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return fmt.Errorf("cannot read a trace: %w", err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err == nil {
		err = read(z)
	}
	if err != nil {
		return fmt.Errorf("cannot read trace %s: %w", name, err)
	}
	return nil
}

const mooncakeBlock = 512

// mooncake reads at most n requests of one of Mooncake's traces, at their own times in seconds.
func mooncake(dir, name string, n int) (jobs []*job, err error) {
	err = open(dir, name, func(r io.Reader) error {
		d := json.NewDecoder(bufio.NewReader(r))
		for len(jobs) < n {
			var line struct {
				Timestamp float64  `json:"timestamp"` // ms
				In        int      `json:"input_length"`
				Out       int      `json:"output_length"`
				Hashes    []uint64 `json:"hash_ids"`
			}
			if err := d.Decode(&line); err == io.EOF {
				return nil
			} else if err != nil {
				return err
			}
			full := min(line.In/mooncakeBlock, len(line.Hashes))
			j := &job{at: line.Timestamp / 1000, in: max(line.In, 1), out: max(line.Out, 1), words: line.Hashes[:full]}
			for i := range j.words {
				j.words[i]++ // the word 0 stands for no block
			}
			jobs = append(jobs, j)
		}
		return nil
	})
	return jobs, err
}

// azure reads at most n requests of one of Azure's traces.
func azure(dir, name string, n int) (jobs []*job, err error) {
	err = open(dir, name, func(r io.Reader) error {
		rows, err := csv.NewReader(r).ReadAll()
		if err != nil {
			return err
		}
		var began time.Time
		for i, row := range rows {
			if i == 0 || len(jobs) >= n {
				continue
			}
			at, err := time.Parse("2006-01-02 15:04:05.9999999", row[0])
			if err != nil {
				return err
			}
			if began.IsZero() {
				began = at
			}
			j := &job{at: at.Sub(began).Seconds()}
			if _, err := fmt.Sscan(row[1]+" "+row[2], &j.in, &j.out); err != nil {
				return err
			}
			j.in, j.out = max(j.in, 1), max(j.out, 1)
			for k := range j.in / azureBlock {
				j.words = append(j.words, mix(uint64(i)<<20+uint64(k)+1)) //nolint:gosec // small
			}
			jobs = append(jobs, j)
		}
		return nil
	})
	return jobs, err
}

const azureBlock = 512

// Bounds of a coding session, which the simulations behind the policy took as well.
const (
	sessionBlock   = 64
	sessionContext = 128 << 10 // tokens: a longer prompt ends the session
	sessionLength  = 60        // requests
	longestThink   = 60.0      // seconds
)

// sessions reads the coding sessions. A job's time is the wait after the answer before.
func sessions(dir string) (all [][]*job, err error) {
	err = open(dir, "claude_code_sessions.jsonl.gz", func(r io.Reader) error {
		d := json.NewDecoder(bufio.NewReader(r))
		for {
			var s session
			if err := d.Decode(&s); err == io.EOF {
				return nil
			} else if err != nil {
				return err
			}
			if jobs := s.jobs(uint64(len(all)) + 1); len(jobs) > 0 { //nolint:gosec // some hundred
				all = append(all, jobs)
			}
		}
	})
	return all, err
}

type session struct {
	ID       string `json:"id"`
	Tool     int    `json:"tool_tokens"`
	System   int    `json:"system_tokens"`
	Requests []struct {
		Type   string   `json:"type"`
		In     int      `json:"in"`
		Out    int      `json:"out"`
		Think  float64  `json:"think_time"`
		Ranges []uint64 `json:"hash_ranges"` // flat, inclusive
	} `json:"requests"`
}

// jobs are the session's own requests, without its sub-agents'. Block ids are the session's, but for tools and system
// prompt, which sessions with the same lengths of both share.
func (s *session) jobs(number uint64) (jobs []*job) {
	h := fnv.New64a()
	fmt.Fprint(h, s.Tool, s.System)
	common, pair := (s.Tool+s.System)/sessionBlock, h.Sum64()
	for _, r := range s.Requests {
		if r.Type == "subagent" || r.In == 0 {
			continue
		}
		if r.In > sessionContext || len(jobs) == sessionLength {
			break
		}
		j := &job{at: min(r.Think, longestThink), in: r.In, out: max(r.Out, 1), session: mix(number)}
		full := r.In / sessionBlock
		for i := 0; i+1 < len(r.Ranges); i += 2 {
			for id := r.Ranges[i]; id <= r.Ranges[i+1] && len(j.words) < full; id++ {
				j.words = append(j.words, mix(number<<32+id))
			}
		}
		for i := range min(common, len(j.words)) {
			j.words[i] = mix(pair + uint64(i)) //nolint:gosec // small
		}
		if n := len(jobs); n > 0 {
			j.like = jobs[n-1]
		}
		jobs = append(jobs, j)
	}
	return jobs
}
