package proxy

// checkWatch fails when the departure watch still knows a connection.
func (f *fixture) checkWatch() {
	f.t.Helper()
	if n := f.srv.watch.Len(); n != 0 {
		f.t.Errorf("the watch still knows %d connections", n)
	}
}
