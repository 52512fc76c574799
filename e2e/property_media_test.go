package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"ramjet/e2e/rig"
)

// TestSessionsWithImages: prompts with images have no keys of tokens, and nothing in the request names the session:
// each later turn goes to the engine of the turn before all the same, whether the image stands in the request or is
// named by an address, and the sessions are spread.
func TestSessionsWithImages(t *testing.T) {
	t.Parallel()
	a, b := rig.NewEngine(t, "a"), rig.NewEngine(t, "b")
	r := rig.Start(t, a, b)
	const sessions, turns = 8, 5
	said := make([][]object, sessions)
	first := make([]string, sessions)
	rng := rand.New(rand.NewPCG(10, 10))
	used := map[string]int{}
	for turn := range turns {
		for i := range sessions {
			if turn == 0 {
				picture := fmt.Sprintf("https://pictures.invalid/%d.png", i)
				if i%2 == 0 {
					raw := make([]byte, 60_000)
					for k := range raw {
						raw[k] = byte(rng.Uint32())
					}
					picture = "data:image/png;base64," + base64.StdEncoding.EncodeToString(raw)
				}
				said[i] = []object{
					{"role": "user", "content": []object{
						{"type": "text", "text": longPrompt(fmt.Sprint(i, ": what is in this picture?"))},
						{"type": "image_url", "image_url": object{"url": picture}},
					}},
				}
			}
			body, err := json.Marshal(object{"model": "m", "stream": true, "messages": said[i]})
			if err != nil {
				t.Fatal(err)
			}
			resp := r.Post(t, rig.ChatPath, string(body))
			engine := resp.Fields.Get("X-Ramjet-Engine")
			if resp.Status != 200 || turn > 0 && engine != first[i] {
				t.Errorf("session %d, turn %d: %d from %q, the turn before was on %q", i, turn, resp.Status, engine, first[i])
			}
			if turn == 0 {
				first[i] = engine
				used[engine]++
			}
			said[i] = append(said[i], object{"role": "assistant", "content": fmt.Sprint("A ship, I think, in turn ", turn)}, object{"role": "user", "content": "Are you sure? Look again."})
		}
	}
	if used["a"] == 0 || used["b"] == 0 {
		t.Errorf("the sessions are on %v", used)
	}
}
