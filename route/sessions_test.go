package route

import "testing"

func TestSessionsKeepTheNewest(t *testing.T) {
	t.Parallel()
	var s sessions
	if slot, _ := s.get(1); slot != -1 {
		t.Errorf("a session nobody wrote is on engine %d", slot)
	}
	s.put(0, 3, 1)
	if slot, _ := s.get(0); slot != -1 {
		t.Error("requests without a session are one session")
	}
	const many = 200_000
	for i := uint64(1); i <= many; i++ {
		s.put(i, int(i%3), int64(i))
	}
	// Four places for what has the same hash: the newest thousands are there
	// but for some that met four newer ones.
	for _, c := range []struct{ newest, least int }{{1000, 1000}, {8000, 7500}, {16000, 12000}} {
		found := 0
		for i := uint64(many - c.newest + 1); i <= many; i++ {
			switch slot, tokens := s.get(i); {
			case slot < 0:
			case slot != int(i%3) || tokens != int64(i):
				t.Fatalf("session %d is on engine %d with %d tokens", i, slot, tokens)
			default:
				found++
			}
		}
		if found < c.least {
			t.Errorf("%d of the newest %d are known, want %d", found, c.newest, c.least)
		}
	}
	if slot, _ := s.get(5); slot != -1 {
		t.Error("the oldest is still known")
	}

	// A session moves, and its engine loses its cache.
	s.put(many, 2, 9)
	if slot, tokens := s.get(many); slot != 2 || tokens != 9 {
		t.Errorf("after a move it is on engine %d with %d tokens", slot, tokens)
	}
	s.forget(2)
	if slot, _ := s.get(many); slot != -1 {
		t.Error("a lost cache is still asked for")
	}
	s.put(many, 2, 9)
	if slot, _ := s.get(many); slot != 2 {
		t.Error("a session that came back is not known")
	}
}
