// Package telemetry holds what Ramjet tells the outside about itself: the
// closed lists of words, metric handles, the access record and the log. It
// imports none of the other packages. Handles are safe for concurrent use;
// they are made when an engine appears and dropped when it is removed, never
// looked up by name on the request path.
package telemetry
