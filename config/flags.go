package config

import (
	"slices"
	"strings"
)

// Flag describes one setting of the command line for help texts.
type Flag struct {
	Name        string // without dashes, such as route.exact
	Short       string // second name without dashes, "" for none
	Placeholder string // "" for booleans, which may stand without a value
	Help        string
	Default     string
	EnvVar      string
}

// The two flags that are no leaves.
const (
	configFlag = "config"
	engineFlag = "engine"
)

// Flags lists every setting in the file's order. The slice is the caller's.
func Flags() []Flag {
	list := []Flag{
		{Name: configFlag, Placeholder: "PATH", Help: "YAML file with the settings", EnvVar: variableName(configFlag)},
		{Name: engineFlag, Placeholder: "NAME=URL[,KEY=VALUE]..", EnvVar: variableName(engineFlag),
			Help: "an engine, repeatable; keys: " + strings.Join(engineRoot.names[2:], ", ") + "; the variable holds several, separated by spaces"},
	}
	for _, l := range leaves {
		f := Flag{Name: l.flag(), Short: l.short, Placeholder: l.codec.placeholder, Help: l.help, Default: l.def, EnvVar: l.variable()}
		if l.words != nil {
			f.Placeholder = strings.Join(l.words, "|")
		}
		switch l.shape {
		case shapeList:
			f.Placeholder += ",.."
		case shapePairs:
			f.Placeholder = "NAME=TEXT,.."
		default:
		}
		list = append(list, f)
	}
	return list
}

// HelpText lists every flag with its default and its variable, for --help.
func HelpText() string {
	var b strings.Builder
	for _, f := range Flags() {
		b.WriteString("  --" + f.Name)
		if f.Placeholder == "" {
			b.WriteString("[=false]")
		} else {
			b.WriteString("=" + f.Placeholder)
		}
		if f.Short != "" {
			b.WriteString(", --" + f.Short)
		}
		b.WriteString("\n        " + f.Help)
		if f.Default != "" {
			b.WriteString(" (default " + f.Default + ")")
		}
		b.WriteString(" [" + f.EnvVar + "]\n")
	}
	return b.String()
}

// flagNames lists all names, without dashes.
func flagNames() []string {
	var names []string
	for _, f := range Flags() {
		names = append(names, f.Name)
		if f.Short != "" {
			names = append(names, f.Short)
		}
	}
	return names
}

// flagTarget is what a flag name stands for; leaf is nil for the two that are
// no leaves.
func flagTarget(name string) (leaf *leaf, canonical string, ok bool) {
	name = strings.ReplaceAll(name, "_", "-")
	if name == configFlag || name == engineFlag {
		return nil, name, true
	}
	for _, l := range leaves {
		if name == l.flag() || name == l.short && name != "" {
			return l, name, true
		}
	}
	return nil, "", false
}

// ParseArgs takes the arguments after a command's name apart: flags are those
// of this package, each as --name=value or --name, ready for LoadOptions.Args;
// rest is everything else in its order. It understands --name=value and --name
// value; a boolean takes a following argument only if that is true or false.
// Everything from "--" on is rest. It reports nothing: Load does.
func ParseArgs(args []string) (flags, rest []string) {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			return flags, append(rest, args[i:]...)
		}
		name, isFlag := strings.CutPrefix(arg, "--")
		bare, _, hasValue := strings.Cut(name, "=")
		leaf, _, known := flagTarget(bare)
		if !isFlag || !known {
			rest = append(rest, arg)
			continue
		}
		if !hasValue && i+1 < len(args) && takesNext(leaf, args[i+1]) {
			i++
			arg += "=" + args[i]
		}
		flags = append(flags, arg)
	}
	return flags, rest
}

func takesNext(l *leaf, next string) bool {
	if l != nil && l.isBool() {
		return next == "true" || next == "false"
	}
	return !strings.HasPrefix(next, "--")
}

func (l *leaf) isBool() bool { return l.codec.placeholder == "" }

// UnknownFlags reports each flag in rest that is neither of this package nor in
// own, the command's own flags without dashes, naming the nearest known one.
func UnknownFlags(rest []string, own ...string) Problems {
	var problems Problems
	known := append(flagNames(), own...)
	for _, arg := range rest {
		if arg == "--" {
			break
		}
		name, isFlag := strings.CutPrefix(arg, "--")
		name, _, _ = strings.Cut(name, "=")
		if isFlag && !slices.Contains(known, name) {
			problems = append(problems, unknownFlag(name, known))
		}
	}
	return problems
}

func unknownFlag(name string, known []string) Problem {
	p := Problem{File: "flag --" + name, Message: "unknown flag", Usage: true, rank: int(layerFlag)}
	best, isClose := nearest(strings.ReplaceAll(name, "_", "-"), known)
	if !isClose {
		// A leaf's last part alone is the likeliest slip: --policy.
		for _, l := range leaves {
			if strings.HasSuffix(l.flag(), "."+name) {
				best, isClose = l.flag(), true
				break
			}
		}
	}
	p.Hint = "the nearest known one is --" + best
	if isClose {
		p.Hint = "did you mean --" + best + "?"
	}
	return p
}

// setting is one value from a flag or a variable, before decoding.
type setting struct {
	leaf  *leaf // nil for an engine
	value string
	at    origin
}

// scanArgs reads the command line; it notes --config and returns the rest.
func (l *loader) scanArgs() []setting {
	var settings []setting
	usage := func(p Problem) {
		p.Usage = true
		l.problems = append(l.problems, p)
	}
	flags, rest := ParseArgs(l.opts.Args)
	for _, arg := range rest {
		if name, isFlag := strings.CutPrefix(arg, "--"); isFlag && name != "" {
			name, _, _ = strings.Cut(name, "=")
			usage(unknownFlag(name, flagNames()))
			continue
		}
		usage(Problem{Message: "unexpected argument " + arg, rank: int(layerFlag)})
	}
	for _, arg := range flags {
		name, value, hasValue := strings.Cut(arg[2:], "=")
		leaf, canonical, _ := flagTarget(name)
		at := origin{layer: layerFlag, name: "--" + canonical}
		switch {
		case !hasValue && leaf != nil && leaf.isBool():
			value = "true"
		case !hasValue:
			usage(at.problem("", faultf("needs a value").hintf("write --%s=VALUE", canonical)))
			continue
		}
		if canonical == configFlag && value == "" {
			usage(at.problem("", faultf("needs a path")))
			continue
		}
		if canonical == configFlag {
			l.file = value
			continue
		}
		settings = append(settings, setting{leaf: leaf, value: value, at: at})
	}
	return settings
}
