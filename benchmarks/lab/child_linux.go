package lab

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// birthplace runs what it is sent on one thread that lives as long as this program: the kernel tells a child of the end of
// the thread that started it, not of the process (PR_SET_PDEATHSIG in prctl(2)).
var birthplace = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// StartChild starts cmd in a process group of its own: a terminal's Ctrl-C reaches this program first. If this program is
// killed, the child is asked to end; it is not killed as well, since a proxy would leave its workers behind.
func StartChild(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	failed := make(chan error, 1)
	birthplace() <- func() { failed <- cmd.Start() }
	return <-failed
}
