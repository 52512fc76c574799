// Package config turns flags, environment variables, one YAML file and the
// defaults into one validated struct, remembering where each value came from.
//
// The struct tags of Config and Engine are the single table of settings: a
// field added there is at once a key of the file, a flag, a variable, a line of
// the help, of the dump and of the digest. Precedence: flag, variable, file,
// default.
//
// Every problem is reported in one go, each at its file:line:column, flag or
// variable. A loaded Config is never written again, so it may be shared by any
// number of goroutines.
//
// The package reads the environment only as it is handed over in LoadOptions.
// It refuses to guess: unknown keys, values without their unit, a second YAML
// document and addresses of cloud metadata services are errors. It does not
// open the files that settings name (CheckFiles asks for that) and it never
// resolves a host name.
package config
