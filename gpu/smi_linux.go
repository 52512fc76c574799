package gpu

import "syscall"

// childAttributes put nvidia-smi into a group of its own, so that a wrapper
// script's children end with it, and make it end with Ramjet even if that is
// killed: with SIGPIPE ignored, as some supervisors leave it, it would write
// into the void for ever. The signal comes when the thread that started it
// ends (prctl(2)), hence whoever starts it stays on its thread.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
