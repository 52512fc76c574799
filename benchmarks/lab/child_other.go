//go:build !linux

package lab

import (
	"os/exec"
	"syscall"
)

// StartChild starts cmd in a process group of its own: a terminal's Ctrl-C reaches this program first. Here a child may
// outlive this program when that is killed.
func StartChild(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd.Start()
}
