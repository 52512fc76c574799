package wire

import "testing"

func TestFirstElements(t *testing.T) {
	for _, c := range []struct {
		in   string
		n    int
		want string
	}{
		{`[]`, 2, `[`},
		{`"text, with commas"`, 2, `"text, with commas"`},
		{`[1]`, 2, `[1`},
		{`[1,2]`, 2, `[1,2`},
		{`[1,2 ]`, 2, `[1,2`},
		{`[1,2 ,3]`, 2, `[1,2`},
		{`[1,2,3]`, 2, `[1,2`},
		{`[{"a":[1,2],"b":","},{"c":"]"},{"d":1}]`, 2, `[{"a":[1,2],"b":","},{"c":"]"}`},
		{`["\"a,","\\",3]`, 2, `["\"a,","\\"`},
		{`["\\\\",1,2]`, 1, `["\\\\"`},
	} {
		if got := string(FirstElements([]byte(c.in), c.n)); got != c.want {
			t.Errorf("FirstElements(%s, %d) = %s, want %s", c.in, c.n, got, c.want)
		}
	}
}
