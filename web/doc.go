// Package web is the admin listener: health, metrics, the JSON API with its
// event stream, the embedded page, mutations of engine states, profiles. What
// it shows is read through the interfaces and functions of Options when it is
// asked for; Run adds what needs two readings, rates and the tokens of each half
// second, from one goroutine, and feeds the streams. A Server is safe for
// concurrent use. It refuses requests for a foreign Host (a page that rebinds
// its name to this address), requests from a foreign Origin, mutations by any
// method but POST, and, where the listener can be reached from other machines,
// mutations and profiles without a token. It never writes a secret, adds nothing
// to the way of a token, and never touches the public port.
package web
