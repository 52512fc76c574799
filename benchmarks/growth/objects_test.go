package growth

import (
	"errors"
	"testing"
	"time"
)

// What comes in bursts is in the mean, and is not in the lower quartile of slices.
func TestMeanHasTheBursts(t *testing.T) {
	const burst, apart = 2 * time.Millisecond, 100
	op := func(i int) error {
		if i%apart == 0 {
			time.Sleep(burst) // never less than that
		}
		return nil
	}
	got, err := mean(50*time.Millisecond, op)
	if least := burst.Seconds() / apart; err != nil || got < least {
		t.Errorf("%v a call, %v; the bursts alone are %v", got, err, least)
	}
	broken := errors.New("broken")
	if _, err := mean(time.Hour, func(int) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
}
