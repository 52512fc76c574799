package kvevents

import "ramjet/radix"

// Residency is one engine's part of the index, which a Feed writes; *radix.Residency is it. The Feed's goroutine alone
// calls what changes something.
type Residency interface {
	// Store takes in blocks and reports whether they stand behind a block that was never announced.
	Store(s *radix.Store) (unknownParent bool)
	// Remove takes one copy of each block out and returns how many were never announced.
	Remove(group int, hashes []uint64) (unknown int)
	// Clear forgets all blocks, since the engine said that its cache is empty.
	Clear()
	// Drop forgets everything of an engine's process.
	Drop()
	// DropDoubtful takes out the blocks that lost one copy of several and returns their number.
	DropDoubtful() int
	// SetDrop sets how many blocks the engine loses at the end of each hit.
	SetDrop(blocks int)
	// Forgotten returns how many blocks were ever forgotten because more were announced than the engine can hold.
	Forgotten() uint64
	// BlockTokens returns the tokens of a block, 0 before the first one. Safe from any goroutine.
	BlockTokens() int
}
