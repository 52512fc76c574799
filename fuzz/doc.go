// Package fuzz holds the fuzz targets that compare a parser with a second,
// slow and obvious one written from the rules. `make fuzz` runs each for 30 s;
// their seeds run with every `go test`. It has no code of its own and nobody
// imports it.
package fuzz
