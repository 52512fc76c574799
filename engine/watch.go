package engine

// Watched is told when the other side of its connection has ended its sending,
// closed or reset it. The call comes from the watch's goroutine, may come more
// than once, and must not block.
type Watched interface{ HungUp() }

// Ticket is a connection's place in a Watch. The zero Ticket is none.
type Ticket struct {
	index uint32
	gen   uint32
}

// Valid reports whether the ticket stands for a connection.
func (t Ticket) Valid() bool { return t.gen != 0 }
