package e2e

import "encoding/json"

// jsonString renders s as a JSON string.
func jsonString(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic("BUG: cannot render a string: " + err.Error())
	}
	return string(b)
}
