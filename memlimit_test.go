package main

import (
	"testing"
	"testing/fstest"
)

func TestContainerMemory(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"no control groups", nil, 0},
		{"version 2, own namespace", map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "536870912\n"}, 512 << 20},
		{"version 2, none set", map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n"}, 0},
		{"version 2, the slice around is tighter", map[string]string{
			"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "1073741824\n", "sys/fs/cgroup/a/memory.max": "268435456\n"}, 256 << 20},
		{"version 2, the host's path and the container's mount", map[string]string{
			"proc/self/cgroup": "0::/system.slice/docker-1.scope\n", "sys/fs/cgroup/memory.max": "1048576\n"}, 1 << 20},
		{"version 1", map[string]string{"proc/self/cgroup": "9:cpu,cpuacct:/x\n4:memory:/docker/1\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "734003200\n"}, 700 << 20},
		{"version 1, none set", map[string]string{"proc/self/cgroup": "4:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 0},
		{"another controller's limit", map[string]string{"proc/self/cgroup": "4:pids:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "734003200\n"}, 0},
		{"hybrid: the memory controller is version 1", map[string]string{
			"proc/self/cgroup": "4:memory:/j\n0::/init\n", "sys/fs/cgroup/memory/j/memory.limit_in_bytes": "2097152\n"}, 2 << 20},
		{"nonsense", map[string]string{"proc/self/cgroup": "\n0\n:::\n0::/../..\n4:memory\n", "sys/fs/cgroup/memory.max": "-1\n"}, 0},
	} {
		files := fstest.MapFS{}
		for name, text := range c.files {
			files[name] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := containerMemory(files); got != c.want {
			t.Errorf("%s: %d bytes, want %d", c.name, got, c.want)
		}
	}
}
