package main

import (
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"

	"ramjet/config"
	"ramjet/telemetry"
)

// memoryShare is how much of a container's memory Go's heap may grow into
// before it collects harder: what the kernel counts besides (stacks of
// threads, socket buffers, the binary's pages) lives in the rest.
const memoryShare = 0.9

// limitMemory gives Go's collector the container's memory limit, which Go does
// not read by itself: without it a heap of 600 MiB grows to 1.2 GiB before it
// is collected, and the kernel kills the process at its limit of 1 GiB. A
// GOMEMLIMIT in the environment wins. It returns the limit in use in bytes, 0
// for none.
func limitMemory() int64 {
	if os.Getenv("GOMEMLIMIT") == "" {
		if limit := containerMemory(os.DirFS("/")); limit > 0 {
			debug.SetMemoryLimit(int64(float64(limit) * memoryShare))
		}
	}
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		return limit
	}
	return 0
}

// sayMemory logs the limit, and warns where bodies alone may take more than
// half of it: they would be held beside everything else, and under the limit
// the process would only collect.
func sayMemory(log *telemetry.Log, cfg *config.Config, limit int64) {
	if limit == 0 {
		return
	}
	log.Info("memory limit", "bytes", limit, "body_memory", cfg.Limits.BodyMemory)
	if cfg.Limits.BodyMemory > limit/2 {
		log.Warn("limits.body_memory is more than half of the memory limit; lower it, or give the container more memory",
			"body_memory", cfg.Limits.BodyMemory, "bytes", limit)
	}
}

// noLimit: cgroup v1 writes "no limit" as the largest multiple of a page
// (kernel Documentation/admin-guide/cgroup-v1/memory.rst); no machine has so much.
const noLimit = 1 << 60

// containerMemory is the least memory limit in bytes of this process's control
// group and the groups around it, 0 without one. In a container the group's
// path is often that of the host while its files are at the root of the mount,
// so every folder on the way up is asked, the root included.
func containerMemory(root fs.FS) int64 {
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0 // not Linux, or no control groups
	}
	least := int64(0)
	for line := range strings.Lines(string(groups)) {
		// "0::/path" is version 2, "9:memory:/path" version 1 (cgroups(7)).
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, ok := strings.Cut(rest, ":")
		mount, file := "sys/fs/cgroup", "memory.max"
		if !ok || controllers != "" && !hasController(controllers, "memory") {
			continue
		}
		if controllers != "" {
			mount, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		}
		for dir := path.Clean("/" + group); ; dir = path.Dir(dir) {
			if n := readLimit(root, path.Join(mount, dir, file)); n > 0 && (least == 0 || n < least) {
				least = n
			}
			if dir == "/" {
				break
			}
		}
	}
	return least
}

func hasController(list, name string) bool {
	for c := range strings.SplitSeq(list, ",") {
		if c == name {
			return true
		}
	}
	return false
}

// readLimit returns 0 for "max", for no limit and for a file that is not there.
func readLimit(root fs.FS, name string) int64 {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || n <= 0 || n >= noLimit {
		return 0
	}
	return n
}
