package rig

import (
	"testing"
)

func TestCountGoroutines(t *testing.T) {
	profile := "goroutine profile: total 9\n" +
		"4 @ 0x1 0x2\n#\t0x1\tnet.(*conn).Read+0x1\tnet.go:1\n\n" +
		"3 @ 0x1\n#\t0x1\tgithub.com/valyala/fasthttp.(*workerPool).workerFunc+0x1\tworkerpool.go:1\n\n" +
		"1 @ 0x1\n#\t0x1\tgithub.com/valyala/fasthttp.(*Server).serveConn+0x1\tserver.go:1\n#\t0x1\tgithub.com/valyala/fasthttp.(*workerPool).workerFunc+0x1\tworkerpool.go:1\n\n" +
		"1 @ 0x1\n#\t0x1\truntime/pprof.writeGoroutine+0x1\tpprof.go:1\n"
	if n, err := countGoroutines(profile); err != nil || n != 5 {
		t.Errorf("got %d, %v, want 5", n, err)
	}
}
