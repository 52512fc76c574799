package gpu

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// unowned is what a GPU belongs to that no engine lists.
var unowned = []string{""}

// ownersLocked names the engines that run on each GPU. An index says little
// where several machines have GPUs, so engines on the host of one of the GPU's
// sources come first; else those that list the index and have no source on
// their own host, as long as that is no guess: GPUs of one machine, and one
// engine or one source for all.
func (s *Sampler) ownersLocked() map[*device][]string {
	all := make(map[*device][]string, len(s.devices))
	unclaimed := map[int][]*device{} // by index
	for _, d := range s.devices {
		if here := s.hereLocked(d); len(here) > 0 {
			all[d] = here
			continue
		}
		unclaimed[d.last.Index] = append(unclaimed[d.last.Index], d)
	}
	for index, list := range unclaimed {
		names := s.strayLocked(index)
		if len(names) == 0 || len(names) > 1 && len(s.feeds) > 1 || !oneMachine(list) {
			names = unowned
		}
		for _, d := range list {
			all[d] = names
		}
	}
	return all
}

// sourcedLocked reports whether a source runs on an engine's host: its GPUs
// come from there and from nowhere else then. One that failed before it told
// anything is none, such as nvidia-smi where there is no driver.
func (s *Sampler) sourcedLocked(o *Owner) bool {
	return slices.ContainsFunc(s.feeds, func(f *feed) bool {
		return (f.spoke || f.trouble == "") && sameHost(f.Host(), o.Host)
	})
}

// hereLocked names the engines that list a GPU on its own machine.
func (s *Sampler) hereLocked(d *device) (names []string) {
	for i := range s.owners {
		o := &s.owners[i]
		if s.sourcedLocked(o) && slices.Contains(o.GPUs, d.last.Index) && slices.ContainsFunc(d.seen, func(f *feed) bool { return sameHost(o.Host, f.Host()) }) {
			names = append(names, o.Engine)
		}
	}
	return names
}

// strayLocked names the engines that list an index and have no source on their
// own host.
func (s *Sampler) strayLocked(index int) (names []string) {
	for i := range s.owners {
		if o := &s.owners[i]; !s.sourcedLocked(o) && slices.Contains(o.GPUs, index) {
			names = append(names, o.Engine)
		}
	}
	return names
}

// oneMachine reports whether all of these GPUs are known to be in one machine.
func oneMachine(list []*device) bool {
	for _, d := range list[1:] {
		if !slices.ContainsFunc(d.seen, func(f *feed) bool {
			return slices.ContainsFunc(list[0].seen, func(g *feed) bool { return sameHost(f.Host(), g.Host()) })
		}) {
			return false
		}
	}
	return true
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
	if !slices.ContainsFunc(s.owners, func(o Owner) bool { return len(o.GPUs) > 0 }) {
		return "no engine says which GPUs it runs on; set engines[].gpus, such as gpus: [0, 1]"
	}
	var hosts []string
	for d, names := range s.ownersLocked() {
		if slices.Equal(names, unowned) && len(s.strayLocked(d.last.Index)) > 0 {
			hosts = append(hosts, hostOr(d.feed.Host()))
		}
	}
	if len(hosts) == 0 {
		return ""
	}
	slices.Sort(hosts)
	return "whose GPUs are those of " + some(slices.Compact(hosts)) + " is unclear: engines list their indexes and none runs there; name the exporter's host in gpu.dcgm as the engine's URL does"
}

// some names the first few of a list.
func some(list []string) string {
	const most = 4
	if len(list) <= most {
		return strings.Join(list, ", ")
	}
	return strings.Join(list[:most], ", ") + " and " + strconv.Itoa(len(list)-most) + " more"
}

func hostOr(host string) string {
	if host == "" {
		return "this machine"
	}
	return host
}
