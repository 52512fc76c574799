package engine

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// asking are the ways in which Ask can wait: in the poller from before the
// question is out, in the poller with a first look, and with the connection's
// own methods.
func asking(t *testing.T, test func(t *testing.T, c *Conn, other *net.TCPConn)) {
	for _, way := range []string{"watched", "unwatched", "plain"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			p := newPeer(t)
			tweaks := []func(*Options){}
			if way == "watched" {
				tweaks = append(tweaks, watched(t))
			}
			c := dial(t, p.engine(t, tweaks...))
			t.Cleanup(func() { _ = c.Close() })
			if way == "plain" {
				c.Socket = Socket{}
				c.Socket.Init(c.Conn, nil)
			}
			if c.Watched() != (way == "watched") {
				t.Fatalf("watched: %v", c.Watched())
			}
			test(t, c, p.conn(t, 0))
		})
	}
}

// answered asks and returns what came, and how often sent was called.
func answered(c *Conn, question []byte) (answer string, calls int, wrote, err error) {
	buf := make([]byte, 100)
	half := len(question) / 2
	n, wrote, err := c.Ask(question[:half], question[half:], func() { calls++ }, func() []byte { return buf }, func() {})
	return string(buf[:n]), calls, wrote, err
}

// echo answers each question of length n with "re:" and the question's start.
func echo(other *net.TCPConn, n int, pause time.Duration) {
	buf := make([]byte, n)
	for {
		if _, err := io.ReadFull(other, buf); err != nil {
			return
		}
		time.Sleep(pause)
		_, _ = other.Write(append([]byte("re:"), buf[:min(n, 8)]...))
	}
}

// TestAsk asks many times on one connection, with answers that come at once
// and ones that let the asker wait.
func TestAsk(t *testing.T) {
	t.Parallel()
	asking(t, func(t *testing.T, c *Conn, other *net.TCPConn) {
		go echo(other, 4, 0)
		for i := range 200 {
			got, calls, wrote, err := answered(c, []byte("ask?"))
			if got != "re:ask?" || calls != 1 || wrote != nil || err != nil {
				t.Fatalf("question %d: %q, sent called %d times, %v, %v", i, got, calls, wrote, err)
			}
		}
	})
	asking(t, func(t *testing.T, c *Conn, other *net.TCPConn) {
		go echo(other, 4, 5*time.Millisecond)
		for range 5 {
			if got, _, _, err := answered(c, []byte("ask?")); got != "re:ask?" {
				t.Fatalf("%q, %v", got, err)
			}
		}
	})
}

// TestAskAtLength asks what no socket's buffer holds at once.
func TestAskAtLength(t *testing.T) {
	t.Parallel()
	asking(t, func(t *testing.T, c *Conn, other *net.TCPConn) {
		question := bytes.Repeat([]byte("question"), 2<<20)
		go func() {
			time.Sleep(5 * time.Millisecond) // until the buffers are full
			echo(other, len(question), 0)
		}()
		got, calls, wrote, err := answered(c, question)
		if got != "re:question" || calls != 1 || wrote != nil || err != nil {
			t.Errorf("%q, sent called %d times, %v, %v", got, calls, wrote, err)
		}
	})
}

// TestAskAnsweredEarly: an engine may answer when it has seen the first part
// of a question, while the second one is under way.
func TestAskAnsweredEarly(t *testing.T) {
	t.Parallel()
	asking(t, func(t *testing.T, c *Conn, other *net.TCPConn) {
		go func() {
			buf := make([]byte, 64<<10)
			for {
				if _, err := io.ReadFull(other, buf[:1]); err != nil {
					return
				}
				_, _ = other.Write([]byte("no"))
				if _, err := io.ReadFull(other, buf[:40_000-1]); err != nil {
					return
				}
			}
		}()
		question := make([]byte, 40_000)
		for range 300 {
			_ = c.SetDeadline(time.Now().Add(patience))
			if got, _, wrote, err := answered(c, question); got != "no" || wrote != nil || err != nil {
				t.Fatalf("%q, %v, %v", got, wrote, err)
			}
		}
	})
}

// TestAskWhereTheEndCame before the question, between two, and in place of an
// answer: each is told, none is waited for.
func TestAskWhereTheEndCame(t *testing.T) {
	t.Parallel()
	asking(t, func(t *testing.T, c *Conn, other *net.TCPConn) {
		go func() {
			buf := make([]byte, 4)
			_, _ = io.ReadFull(other, buf)
			_ = other.CloseWrite()
		}()
		if _, calls, wrote, err := answered(c, []byte("ask?")); calls != 1 || wrote != nil || err != io.EOF {
			t.Errorf("in place of an answer: sent called %d times, %v, %v", calls, wrote, err)
		}
		if _, calls, wrote, err := answered(c, []byte("ask?")); calls != 1 || wrote != nil || err != io.EOF {
			t.Errorf("behind the end: sent called %d times, %v, %v", calls, wrote, err)
		}
	})
	asking(t, func(t *testing.T, c *Conn, other *net.TCPConn) {
		_ = other.SetLinger(0)
		_ = other.Close()
		eventually(t, "a refusal", func() bool {
			_, calls, wrote, err := answered(c, []byte("ask?"))
			return calls == 1 && err != nil && (wrote != nil || err != io.EOF)
		})
	})
	asking(t, func(t *testing.T, c *Conn, other *net.TCPConn) {
		// Whether the watch has told already is left to chance, over many rounds.
		_ = other.CloseWrite()
		if _, _, _, err := answered(c, []byte("ask?")); err != io.EOF {
			t.Errorf("before the question: %v", err)
		}
	})
}

// TestAskInTime: a deadline ends the wait, one that has passed even the
// question, and closing ends it from anywhere.
func TestAskInTime(t *testing.T) {
	t.Parallel()
	asking(t, func(t *testing.T, c *Conn, _ *net.TCPConn) {
		_ = c.SetDeadline(time.Now().Add(20 * time.Millisecond))
		if _, calls, wrote, err := answered(c, []byte("ask?")); calls != 1 || wrote != nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("sent called %d times, %v, %v", calls, wrote, err)
		}
		if _, calls, wrote, err := answered(c, []byte("ask?")); calls != 1 || !errors.Is(wrote, os.ErrDeadlineExceeded) || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("behind it: sent called %d times, %v, %v", calls, wrote, err)
		}
		_ = c.SetDeadline(time.Time{})
		done := make(chan error)
		go func() {
			_, _, _, err := answered(c, []byte("ask?"))
			done <- err
		}()
		time.Sleep(5 * time.Millisecond)
		_ = c.Close()
		if err := <-done; !errors.Is(err, net.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	})
}
