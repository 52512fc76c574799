// Package web is the admin listener: health, metrics, the JSON API, mutations
// of engine states, profiles. Everything is read through the interfaces and
// functions of Options when it is asked for, so a Server holds no state of its
// own and is safe for concurrent use. It refuses requests for a foreign Host
// (a page that rebinds its name to this address), requests from a foreign
// Origin, mutations by any method but POST, and, where the listener can be
// reached from other machines, mutations and profiles without a token. It
// never writes a secret and never touches the public port.
package web
