//go:build !linux

package gpu

import "syscall"

// childAttributes put nvidia-smi into a group of its own, so that a wrapper
// script's children end with it.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
