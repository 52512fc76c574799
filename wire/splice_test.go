package wire

import (
	"strings"
	"testing"
)

func TestAppendModelSplice(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ body, model, want string }{
		{`{"model":"gpt-4o","stream":true}`, "org/m", `{"model":"org/m","stream":true}`},
		{"\xef\xbb\xbf { \"model\" :\t\"a\" , \"x\":[1 , 2]}\n", "b", "\xef\xbb\xbf { \"model\" :\t\"b\" , \"x\":[1 , 2]}\n"},
		{`{"model":"a","model":"b"}`, "c", `{"model":"a","model":"c"}`},
		{`{"model":"a","m\u006fdel":"b"}`, "c", `{"model":"a","m\u006fdel":"c"}`},
		{`{"a":{"model":"a"},"model":"b","b":{"model":"c"}}`, "d", `{"a":{"model":"a"},"model":"d","b":{"model":"c"}}`},
		{`{"model":"a","model":null}`, "c", `{"model":"a","model":null}`},
		{`{"x":1}`, "c", `{"x":1}`},
		{`{"model":"a"}`, "", `{"model":"a"}`},
		{`["model","a"]`, "c", `["model","a"]`},
		{`{"model":"a"}`, "q\"\u2028\n", `{"model":"q\"\u2028\n"}`},
		{`{"messages":[{"content":"\"model\":\"a\" \ud83d"}],"model":"a"}`, "b", `{"messages":[{"content":"\"model\":\"a\" \ud83d"}],"model":"b"}`},
	} {
		got := string(AppendModelSplice([]byte("head "), []byte(c.body), mustPeek(t, c.body), c.model))
		if got != "head "+c.want {
			t.Errorf("%s with %q becomes %s", c.body, c.model, got)
		}
	}
}

func TestAppendIncludeUsage(t *testing.T) {
	t.Parallel()
	const full = `{"include_usage":true}`
	for _, c := range []struct{ body, want string }{ // "" for not ok
		{`{"stream":true}`, `{"stream":true,"stream_options":` + full + `}`},
		{`{"stream":true } `, `{"stream":true ,"stream_options":` + full + `} `},
		{`{"stream":"on"}`, `{"stream":"on","stream_options":` + full + `}`},
		{`{"stream":true,"stream_options":null,"a":1}`, `{"stream":true,"stream_options":` + full + `,"a":1}`},
		{`{"stream":true,"stream_options":{}}`, `{"stream":true,"stream_options":` + full + `}`},
		{`{"stream":true,"stream_options":{ }}`, `{"stream":true,"stream_options":{ "include_usage":true}}`},
		{`{"stream_options":{"x":[{}]},"stream":true}`, `{"stream_options":{"x":[{}],"include_usage":true},"stream":true}`},
		{`{"stream":true,"stream_options":{"include_usage":false}}`, `{"stream":true,"stream_options":` + full + `}`},
		{`{"stream":true,"stream_options":{"include_usage":null}}`, `{"stream":true,"stream_options":` + full + `}`},
		{`{"stream":true,"stream_options":{"include_usage":"no","y":1}}`, `{"stream":true,"stream_options":{"include_usage":true,"y":1}}`},
		{`{"stream":true,"stream_options":{"include_usage":true,"include_us\u0061ge":0}}`, `{"stream":true,"stream_options":{"include_usage":true,"include_us\u0061ge":true}}`},
		{`{"stream_options":{"include_usage":true},"stream":true,"stream_options":{}}`, `{"stream_options":` + full + `,"stream":true,"stream_options":` + full + `}`},
		{`{"stream":true,"stream_options":{"include_usage":true}}`, ""},
		{`{"stream":true,"stream_options":{"include_usage":1}}`, ""},
		{`{"stream":true,"stream_options":{"include_usage":"banana"}}`, ""},
		{`{"stream":true,"stream_options":{"continuous_usage_stats":true}}`, ""},
		{`{"stream":true,"stream_options":{"continuous_usage_st\u0061ts":"on","include_usage":false}}`, ""},
		{`{"stream":true,"stream_options":{"continuous_usage_stats":false}}`, `{"stream":true,"stream_options":{"continuous_usage_stats":false,"include_usage":true}}`},
		{`{"stream":true,"stream_options":{"continuous_usage_stats":null}}`, `{"stream":true,"stream_options":{"continuous_usage_stats":null,"include_usage":true}}`},
		{`{"stream":true,"stream_options":"x"}`, ""},
		{`{"stream":true,"stream_options":[]}`, ""},
		{`{"stream":false}`, ""},
		{`{"stream":true,"stream":null}`, ""},
		{`{}`, ""},
		{`[true]`, ""},
		{"{\x00}\x00", ""},
	} {
		out, ok := AppendIncludeUsage([]byte("head "), []byte(c.body), mustPeek(t, c.body))
		want, wantOK := "head "+c.want, c.want != ""
		if ok != wantOK || string(out) != want {
			t.Errorf("%s becomes %s, %v", c.body, out, ok)
		}
	}
}

func TestAppendSplicesDoesBoth(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"model":"a","stream":true}`:                       `{"model":"mm","stream":true,"stream_options":{"include_usage":true}}`,
		`{"stream_options":{},"stream":true,"model":"a"}`:   `{"stream_options":{"include_usage":true},"stream":true,"model":"mm"}`,
		`{"model":"a","stream_options":null,"stream":true}`: `{"model":"mm","stream_options":{"include_usage":true},"stream":true}`,
	} {
		out, asked := AppendSplices(nil, []byte(body), mustPeek(t, body), "mm", true)
		if string(out) != want || !asked {
			t.Errorf("%s becomes %s, %v", body, out, asked)
		}
	}
	const body = `{"model":"a","stream":false}`
	if out, asked := AppendSplices(nil, []byte(body), mustPeek(t, body), "mm", true); asked || string(out) != strings.Replace(body, "a", "mm", 1) {
		t.Errorf("%s, %v", out, asked)
	}
}

// The splices of every body that Python accepts are read again as meant.
func TestSplicesOnTheGoldenCorpus(t *testing.T) {
	t.Parallel()
	const name = "re\"placed\u2028"
	for _, c := range loadGolden(t) {
		var p, again Peeked
		if p.Peek(c.Body) != nil {
			continue
		}
		out, asked := AppendSplices(nil, c.Body, &p, name, true)
		if err := again.Peek(out); err != nil {
			t.Fatalf("%.80q becomes %.80q: %v", c.Body, out, err)
		}
		if !p.Model.Empty() && string(again.ModelName) != name || p.Model.Empty() && again.ModelName != nil {
			t.Errorf("%.80q: model is now %q", c.Body, again.ModelName)
		}
		if asked && !again.IncludeUsage || !asked && again.IncludeUsage != p.IncludeUsage {
			t.Errorf("%.80q becomes %.80q: asked %v", c.Body, out, asked)
		}
		if p.Cap != again.Cap || string(p.Session) != string(again.Session) || p.Stream != again.Stream || p.MessageCount != again.MessageCount {
			t.Errorf("%.80q becomes %.80q: something else changed", c.Body, out)
		}
	}
}
