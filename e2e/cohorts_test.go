package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"ramjet/e2e/rig"
)

// cohortSessions is how many sessions the shares are counted over.
const cohortSessions = 10_000

// cohort asks by dry runs which of the sessions are in the cohort for which
// exact residency decides, and checks that each says the percentage.
func cohort(t *testing.T, r *rig.Ramjet, percent float64, sessions int) []bool {
	t.Helper()
	in := make([]bool, sessions)
	const askers = 6
	var wg sync.WaitGroup
	for k := range askers {
		wg.Go(func() {
			tr := &http.Transport{}
			defer tr.CloseIdleConnections()
			c := &http.Client{Transport: tr, Timeout: 2 * rig.Patience}
			for i := k; i < sessions; i += askers {
				if err := cohortOf(r, c, i, percent, &in[i]); err != nil {
					t.Errorf("session %d: %v", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	return in
}

// cohortOf asks for one session.
func cohortOf(r *rig.Ramjet, c *http.Client, i int, percent float64, in *bool) error {
	req, err := http.NewRequest("POST", "http://"+r.Admin+"/api/v1/explain?path="+rig.ChatPath, strings.NewReader(rig.ChatBody(true)))
	if err != nil {
		return err
	}
	req.Header.Set("X-Session-Id", fmt.Sprintf("session-%d", i))
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	var x struct {
		Cohort struct {
			Percent float64
			In      bool
		}
	}
	if err == nil {
		err = json.Unmarshal(body, &x)
	}
	if err != nil || resp.StatusCode != 200 || x.Cohort.Percent != percent {
		return fmt.Errorf("%d %v %.300s, want %v %%", resp.StatusCode, err, body, percent)
	}
	*in = x.Cohort.In
	return nil
}

func count(in []bool) (n int) {
	for _, one := range in {
		if one {
			n++
		}
	}
	return n
}

// within3Sigma checks a cohort's size against its share.
func within3Sigma(t *testing.T, in []bool, percent float64) {
	t.Helper()
	n, p := float64(len(in)), percent/100
	if got, sigma := float64(count(in)), math.Sqrt(n*p*(1-p)); math.Abs(got-n*p) > 3*sigma {
		t.Errorf("%v of %v sessions are in the cohort of %v %%: more than 3 sigma off", got, n, percent)
	}
}

// contained checks that who is in a smaller cohort is in the larger one.
func contained(t *testing.T, smaller, larger []bool) {
	t.Helper()
	for i := range smaller {
		if smaller[i] && !larger[i] {
			t.Fatalf("session %d is in the smaller cohort and not in the larger one", i)
		}
	}
}

// TestCohorts: of 10,000 sessions those for which exact residency decides are
// the share that is asked for, and stay in it while it grows by reloads, live.
func TestCohorts(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	file := filepath.Join(t.TempDir(), "ramjet.yaml")
	share := func(percent string) {
		t.Helper()
		if err := os.WriteFile(file, []byte("route: {exact: "+percent+"}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	share("1%")
	r := rig.Start(t, a, b, "--config="+file)
	cohorts := map[float64][]bool{}
	for _, percent := range []float64{1, 10, 100} {
		if percent != 1 {
			share(fmt.Sprintf("%v%%", percent))
			if status, body := r.Order(t, "POST", "/-/reload"); status != 200 {
				t.Fatalf("reload: %d %s", status, body)
			}
		}
		cohorts[percent] = cohort(t, r, percent, cohortSessions)
		within3Sigma(t, cohorts[percent], percent)
		if _, body := r.AdminGet("/api/v1/topology"); !strings.Contains(body, fmt.Sprintf(`"exact":{"mode":"percent","percent":%v}`, percent)) {
			t.Errorf("the topology does not tell %v %%", percent)
		}
	}
	contained(t, cohorts[1], cohorts[10])
	contained(t, cohorts[10], cohorts[100])
	if count(cohorts[100]) != cohortSessions {
		t.Errorf("%d of %d sessions are in the cohort of 100 %%", count(cohorts[100]), cohortSessions)
	}
}

// TestCohortKey: without a key file every Ramjet draws the same sessions, so
// that a client can find out beforehand which names are among them; with one,
// the names that were among them are drawn as any others, and the same file
// draws the same sessions on another Ramjet.
func TestCohortKey(t *testing.T) {
	t.Parallel()
	key := func(text string) string {
		file := filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return "--route.cohort-key-file=" + file
	}
	draw := func(flags ...string) []bool {
		r := rig.Start(t, rig.NewEngine(t, "a"), rig.NewEngine(t, "b"), append([]string{"--exact=20%"}, flags...)...)
		return cohort(t, r, 20, 2000)
	}
	fixed, again := draw(), draw()
	one, other, copied := draw(key("first secret")), draw(key("second secret")), draw(key("first secret"))
	same := func(x, y []bool) (n int) {
		for i := range x {
			if x[i] && y[i] {
				n++
			}
		}
		return n
	}
	if n := same(fixed, again); n != count(fixed) || n != count(again) {
		t.Errorf("two Ramjets without a key draw %d and %d sessions, %d of them the same", count(fixed), count(again), n)
	}
	if n := same(one, copied); n != count(one) || n != count(copied) {
		t.Errorf("two Ramjets with one key draw %d and %d sessions, %d of them the same", count(one), count(copied), n)
	}
	// Drawn by chance, 80 of the 400 are the same, give or take 8.
	for what, n := range map[string]int{"without a key and with one": same(fixed, one), "with two keys": same(one, other)} {
		if n < 80-4*8 || n > 80+4*8 {
			t.Errorf("%s: %d of 400 sessions are the same, want about 80: who knows the one knows the other", what, n)
		}
	}
	for _, in := range [][]bool{fixed, one, other} {
		within3Sigma(t, in, 20)
	}
}
