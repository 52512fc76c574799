package gpu

import "strings"

// Note says in a sentence what to set when figures are missing; "" when every
// source delivers and its GPUs belong to engines.
func (s *Sampler) Note() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.off:
		return "gpu.source is off; set gpu.source: auto to see the GPUs"
	case len(s.feeds) == 0:
		return "no nvidia-smi was found on PATH and gpu.dcgm lists no exporter; set gpu.dcgm: [http://HOST:9400] (a dcgm-exporter beside the engines), " +
			"or run Ramjet where nvidia-smi runs"
	}
	var notes []string
	for _, f := range s.feeds {
		switch {
		case f.trouble != "":
			notes = append(notes, f.Name()+": "+f.trouble)
		case !f.spoke:
			notes = append(notes, f.Name()+": nothing received yet")
		}
	}
	if len(notes) > 0 {
		return strings.Join(notes, "; ")
	}
	return s.unownedLocked()
}
