package proxy

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"os"
	"strings"

	"ramjet/wire"
)

// Keys is the set of client keys. It keeps hashes, so that a comparison takes
// the same time whatever the lengths, and a dump of memory shows no key.
type Keys struct {
	hashes [][sha256.Size]byte
}

// LoadKeys reads one key a line; empty lines and lines that begin with # are
// skipped, white space and CR around a key too.
func LoadKeys(path string) (*Keys, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read keys: %w", err)
	}
	k := &Keys{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line != "" && line[0] != '#' {
			k.hashes = append(k.hashes, sha256.Sum256([]byte(line)))
		}
	}
	if len(k.hashes) == 0 {
		return nil, fmt.Errorf("cannot use keys: %s holds none", path)
	}
	return k, nil
}

// admits reports whether the head carries a valid key. With several
// credentials any valid one admits (CONTRACT 10.17): SDKs send an empty
// x-api-key beside a bearer token, others a vendor's token beside ours.
func (k *Keys) admits(h *wire.RequestHead) bool {
	ok := false
	for i := range h.Fields {
		name, value := h.Fields[i].Name, h.Fields[i].Value
		switch {
		case sameName(name, "authorization"):
			if len(value) > 7 && sameName(value[:7], "bearer ") {
				ok = k.valid(trimSpaces(value[7:])) || ok
			}
		case sameName(name, "x-api-key"):
			ok = k.valid(value) || ok
		}
	}
	return ok
}

func (k *Keys) valid(key []byte) bool {
	hash := sha256.Sum256(key)
	found := 0
	for i := range k.hashes {
		found |= subtle.ConstantTimeCompare(hash[:], k.hashes[i][:])
	}
	return found == 1
}

func trimSpaces(b []byte) []byte {
	for len(b) > 0 && b[0] == ' ' {
		b = b[1:]
	}
	return b
}

// sameName compares a header name with a lower-case one, whatever the case.
func sameName(name []byte, lower string) bool {
	if len(name) != len(lower) {
		return false
	}
	for i := range name {
		c := name[i]
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}
