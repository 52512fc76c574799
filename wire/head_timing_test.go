package wire

import "testing"

const sdkRequest = "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nAccept-Encoding: gzip, deflate\r\nConnection: keep-alive\r\n" +
	"Accept: application/json\r\nContent-Type: application/json\r\nUser-Agent: OpenAI/Python 2.9.0\r\nX-Stainless-Lang: python\r\nX-Stainless-Package-Version: 2.9.0\r\n" +
	"X-Stainless-OS: Linux\r\nX-Stainless-Arch: x64\r\nX-Stainless-Runtime: CPython\r\nX-Stainless-Runtime-Version: 3.11.2\r\nAuthorization: Bearer sk-none\r\n" +
	"X-Stainless-Async: false\r\nx-stainless-retry-count: 0\r\nx-stainless-read-timeout: 600\r\nContent-Length: 4711\r\n\r\n"

const streamResponse = "HTTP/1.1 200 OK\r\ndate: Mon, 30 Nov 2026 10:00:00 GMT\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"

func BenchmarkRequestHead(b *testing.B) {
	raw := []byte(sdkRequest)
	var h RequestHead
	b.ReportAllocs()
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		h.Reset()
		if _, err := h.Parse(raw); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkResponseHead(b *testing.B) {
	raw := []byte(streamResponse)
	var h ResponseHead
	b.ReportAllocs()
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		h.Reset()
		if _, err := h.Parse(raw); err != nil {
			b.Fatal(err)
		}
	}
}
