package benchmarks

import (
	"bytes"
	"testing"
)

func TestChunkDecoderCutAtEveryByte(t *testing.T) {
	t.Parallel()
	const body = "5\r\nhello\r\nA;name=value\r\n, chunked \r\n06\r\nworld!\r\n0\r\nX-Trailer: 1\r\nY: 2\r\n\r\n"
	const want = "hello, chunked world!"
	const next = "HTTP/1.1 200 OK\r\n"
	for cut := range len(body) + 1 {
		var d chunkDecoder
		var got []byte
		got, used, err := d.decode(got, []byte(body[:cut]))
		if err != nil || used != cut || d.ended() != (cut == len(body)) {
			t.Fatalf("cut at %d: used %d, ended %v, %v", cut, used, d.ended(), err)
		}
		got, used, err = d.decode(got, []byte(body[cut:]+next))
		if err != nil || used != len(body)-cut || !d.ended() || string(got) != want {
			t.Fatalf("cut at %d: %q, used %d, ended %v, %v", cut, got, used, d.ended(), err)
		}
	}
}

func TestChunkDecoderRefuses(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		"\r\n", "g\r\n", "-1\r\n", " 5\r\nhello\r\n", "5 \r\nhello\r\n", "5\nhello\r\n", "5\r\nhelloX\r\n", "5\r\nhello\rX", "ffffffff\r\n",
		"0\r\n\rX", "5\r\nhello\r\n\r\n", "0x5\r\nhello\r\n",
	} {
		var d chunkDecoder
		if _, _, err := d.decode(nil, []byte(body)); err == nil && !d.ended() {
			t.Errorf("%q was taken", body)
		} else if err == nil {
			t.Errorf("%q was taken to its end", body)
		}
	}
}

func TestParseAnswerHead(t *testing.T) {
	t.Parallel()
	const chunked = "HTTP/1.1 200 OK\r\nServer: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\nrest"
	head, used, err := parseAnswerHead([]byte(chunked))
	if err != nil || used != len(chunked)-4 || head != (answerHead{status: 200, chunked: true, length: -1, closing: true}) {
		t.Errorf("%+v %d %v", head, used, err)
	}
	for cut := range used {
		if _, n, err := parseAnswerHead([]byte(chunked[:cut])); n != 0 || err != nil {
			t.Fatalf("cut at %d: used %d, %v", cut, n, err)
		}
	}
	head, _, err = parseAnswerHead([]byte("HTTP/1.1 503 Busy\r\ncontent-length:  12 \r\n\r\n"))
	if err != nil || head != (answerHead{status: 503, length: 12}) {
		t.Errorf("%+v %v", head, err)
	}
	for _, bad := range []string{"HTTP/1.0 200 OK\r\n\r\n", "HTTP/1.1 2x0 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"} {
		if _, _, err := parseAnswerHead([]byte(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestParseEngineRequest(t *testing.T) {
	t.Parallel()
	ask := Ask{Seed: 77, Tokens: 3, PaceMicros: 10, Stream: true}
	whole, _ := ask.appendRequest(nil, nil, "host:1", true)
	for cut := range len(whole) {
		if _, used, err := parseEngineRequest(whole[:cut]); used != 0 || err != nil {
			t.Fatalf("cut at %d: used %d, %v", cut, used, err)
		}
	}
	req, used, err := parseEngineRequest(append(bytes.Clone(whole), "GET"...))
	if err != nil || used != len(whole) || req.method != "POST" || !req.closing || req.ask != ask {
		t.Errorf("%+v %d %v", req, used, err)
	}
	for _, bad := range []string{"POST\r\n\r\n", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", "POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n"} {
		if _, _, err := parseEngineRequest([]byte(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
