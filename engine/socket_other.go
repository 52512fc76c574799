//go:build unix && !linux

package engine

func (s *Socket) bind() { s.rc = nil }

// Read reads what is there, or waits for it. It returns io.EOF at the end.
func (s *Socket) Read(p []byte) (int, error) { return s.nc.Read(p) }

// Await reads into a buffer from get. Without access to the poller the buffer
// is held while waiting.
func (s *Socket) Await(get func() []byte, _ func()) (int, error) { return s.nc.Read(get()) }

// Write writes all of p.
func (s *Socket) Write(p []byte) (int, error) {
	if s.Blocked != nil {
		s.Blocked()
	}
	return s.nc.Write(p)
}
