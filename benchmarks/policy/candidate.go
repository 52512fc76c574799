package policy

import "ramjet/route"

// candidate is who places the requests of a run.
type candidate struct {
	name     string
	settings route.Settings
	make     func(w *world) chooser
	disturb  func(w *world) // nil: nothing goes wrong
}

// The names of what is Ramjet's own.
const (
	nameDefault   = "default"
	nameLearned   = "learned"
	nameDelay     = "learned, delay 0.1"
	nameAlone     = "no single flight"
	nameOwnTurns  = "own round-robin"
	nameOwnTokens = "own least-tokens"
)

func own(name string, s route.Settings) candidate {
	return candidate{name: name, settings: s, make: func(*world) chooser { return &ours{} }}
}

// candidates are all that are compared, by name.
func candidates() map[string]candidate {
	all := map[string]candidate{}
	add := func(c candidate) { all[c.name] = c }
	add(own(nameDefault, defaults()))
	s := defaults()
	s.Profile = route.ProfileLearned
	add(own(nameLearned, s))
	s.DelayWeight = 0.1
	add(own(nameDelay, s))
	add(candidate{name: nameAlone, settings: defaults(), make: func(*world) chooser { return &ours{alone: true} }})
	s = defaults()
	s.Policy = route.PolicyRoundRobin
	add(own(nameOwnTurns, s))
	s.Policy = route.PolicyLeastTokens
	add(own(nameOwnTokens, s))
	for _, r := range rules() {
		add(candidate{name: r.name, settings: defaults(), make: func(w *world) chooser { return newBoard(w, r) }})
	}
	return all
}
