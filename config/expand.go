package config

import (
	"errors"
	"io/fs"
	"regexp"
	"strings"
)

var (
	// reference matches the escape $${, a whole ${NAME}, or an unfinished ${.
	reference    = regexp.MustCompile(`\$\$\{|\$\{[^}]*\}?`)
	variableText = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	secretName   = regexp.MustCompile(`(?i)(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL)S?$`)
)

// expand replaces each ${NAME} of a value by the variable; $${ stands for ${.
// It works on the parsed scalar, so a variable's text cannot add keys. show is
// the value; but if a variable's name says that it holds a secret, show is in
// the file's own notation with that reference left in place.
func expand(s string, env map[string]string) (value, show string, f *fault) {
	if !strings.Contains(s, "${") {
		return s, s, nil
	}
	secret := false
	value = reference.ReplaceAllStringFunc(s, func(ref string) string {
		if ref == escapedReference {
			return "${"
		}
		name := referenceName(ref)
		got, ok := env[name]
		switch {
		case !strings.HasSuffix(ref, "}"):
			f = faultf("${ without }").hintf("write $${ for the characters themselves")
		case !variableText.MatchString(name):
			f = faultf("bad variable name %q in ${..}", name).hintf("only ${NAME} is understood; write $${ for the characters themselves")
		case !ok:
			f = faultf("variable %s is not set", name)
		}
		secret = secret || secretName.MatchString(name)
		return got
	})
	if !secret || f != nil {
		return value, value, f
	}
	show = reference.ReplaceAllStringFunc(s, func(ref string) string {
		name := referenceName(ref)
		if ref == escapedReference || secretName.MatchString(name) {
			return ref
		}
		return escapeReferences(env[name])
	})
	return value, show, nil
}

const escapedReference = "$${"

func referenceName(ref string) string {
	return strings.TrimSuffix(strings.TrimPrefix(ref, "${"), "}")
}

// escapeReferences writes a text so that expand gives it back.
func escapeReferences(s string) string { return strings.ReplaceAll(s, "${", escapedReference) }

// reason leaves out the path that a file error repeats.
func reason(err error) error {
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
