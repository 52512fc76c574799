package rig

import (
	"encoding/json"
)

// JSONString renders s as a JSON string.
func JSONString(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic("BUG: cannot render a string: " + err.Error())
	}
	return string(b)
}
