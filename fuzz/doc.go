// Package fuzz holds the fuzz targets that compare a parser with a second,
// slow and obvious one written from the rules, and those that drive a whole part
// from outside. `make fuzz` runs them, and the targets that live beside their
// parsers in other packages, for 60 s each; their seeds run with every `go
// test`. It has no code of its own and nobody imports it.
package fuzz
