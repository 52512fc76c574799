package gpu

import (
	"net/netip"
	"slices"
	"strings"
)

// unowned is what a GPU belongs to that no engine lists.
var unowned = []string{""}

// ownersOfLocked names the engines that run on a GPU. An index says little
// where several machines have GPUs, so engines on the source's own host come
// first; else those that list the index, as long as that is no guess: one
// engine, or one source for all of them.
func (s *Sampler) ownersOfLocked(d *device) []string {
	host := d.feed.Host()
	var here, anywhere []string
	for _, o := range s.owners {
		if !slices.Contains(o.GPUs, d.last.Index) {
			continue
		}
		anywhere = append(anywhere, o.Engine)
		if sameHost(o.Host, host) {
			here = append(here, o.Engine)
		}
	}
	switch {
	case len(here) > 0:
		return here
	case len(anywhere) == 1, len(anywhere) > 1 && len(s.feeds) == 1:
		return anywhere
	}
	return unowned
}

// sameHost compares the names of two machines; this one has many.
func sameHost(a, b string) bool {
	return strings.EqualFold(a, b) || thisHost(a) && thisHost(b)
}

func thisHost(name string) bool {
	if name == "" || strings.EqualFold(name, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.Unmap().IsLoopback()
}

// unownedLocked says what to set where a GPU belongs to no engine or an engine
// names no GPU.
func (s *Sampler) unownedLocked() string {
	listed := slices.ContainsFunc(s.owners, func(o Owner) bool { return len(o.GPUs) > 0 })
	if !listed {
		return "no engine says which GPUs it runs on; set engines[].gpus, such as gpus: [0, 1]"
	}
	for _, d := range s.devices {
		if host := d.feed.Host(); slices.Equal(s.ownersOfLocked(d), unowned) && s.listedLocked(d.last.Index) > 1 {
			return "more than one engine lists a GPU of that index and none runs on " + hostOr(host) + "; name the exporter's host in gpu.dcgm as the engine's URL does"
		}
	}
	return ""
}

func (s *Sampler) listedLocked(index int) (n int) {
	for _, o := range s.owners {
		if slices.Contains(o.GPUs, index) {
			n++
		}
	}
	return n
}

func hostOr(host string) string {
	if host == "" {
		return "this machine"
	}
	return host
}
