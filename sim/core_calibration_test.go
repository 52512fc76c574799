package sim

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// reference is what the reference deployment measured: MTP over standard in aggregate decode throughput.
var reference = []struct {
	concurrency, output int
	ratio               float64
}{
	{1, 256, 1.791},
	{8, 256, 1.350},
	{16, 256, 1.270},
	{32, 256, 1.075},
	{32, 512, 1759.2 / 1844.1},
}

// TestCalibration holds the two profiles against the reference within 2 %, in virtual time: bursts of equal requests,
// and a closed loop in which each client sends its next request when it has the answer.
func TestCalibration(t *testing.T) {
	for _, requests := range []int{1, 4} {
		for _, ref := range reference {
			t.Run(fmt.Sprintf("c%d/%dtokens/%deach", ref.concurrency, ref.output, requests), func(t *testing.T) {
				standard := throughput(t, ProfileStandard, ref.concurrency, ref.output, requests)
				mtp := throughput(t, ProfileMTP, ref.concurrency, ref.output, requests)
				t.Logf("standard %.1f tok/s, mtp %.1f tok/s, ratio %.4f, wanted %.4f", standard, mtp, mtp/standard, ref.ratio)
				within(t, "ratio", mtp/standard, ref.ratio)
				if ref.output == 512 {
					within(t, "standard tok/s", standard, 1844.1)
					within(t, "mtp tok/s", mtp, 1759.2)
				}
			})
		}
	}
}

func within(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got/want-1) > 0.02 {
		t.Errorf("%s is %.4g, %.1f %% off %.4g", what, got, 100*(got/want-1), want)
	}
}

// throughput returns output tokens per second of virtual time with so many clients, each sending so many requests of
// 16 prompt tokens.
func throughput(t *testing.T, profile string, clients, output, requests int) (rate float64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := startCore(t, CoreOptions{Profile: profile, Seed: 7})
		begin := time.Now()
		var wg sync.WaitGroup
		for client := range clients {
			wg.Go(func() {
				for r := range requests {
					s := c.Submit(Job{Prompt: promptOf(client*1000+r, 16), MaxTokens: output})
					if out, err := readAll(s); err != nil || len(out.Tokens) != output {
						t.Errorf("%d tokens, error %v", len(out.Tokens), err)
					}
				}
			})
		}
		wg.Wait()
		rate = float64(clients*output*requests) / time.Since(begin).Seconds()
	})
	return rate
}

// startCore runs a core until the test ends.
func startCore(t *testing.T, o CoreOptions) *Core {
	t.Helper()
	c := NewCore(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != context.Canceled {
			t.Errorf("Run returned %v", err)
		}
	})
	return c
}

// promptOf makes a prompt of n tokens that shares no block with one of another number.
func promptOf(number, n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(mix(uint64(number), uint64(i)) % 4000)
	}
	return out
}

// readAll reads a sequence to its end.
func readAll(s *Sequence) (Output, error) {
	var all Output
	for {
		out, err := s.Next(context.Background())
		all.Tokens = append(all.Tokens, out.Tokens...)
		all.Finished, all.FinishReason = out.Finished, out.FinishReason
		if err != nil || out.Finished {
			return all, err
		}
	}
}
