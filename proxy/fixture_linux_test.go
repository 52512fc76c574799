package proxy

// checkWatch fails when the departure watch still knows a connection.
func (f *fixture) checkWatch() {
	f.t.Helper()
	w := f.srv.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.table {
		if w.table[i].c != nil {
			f.t.Errorf("the watch still knows connection %d", i)
		}
	}
}
