package wire

import "testing"

// A short request and its answer, without the prompt and the options that
// would hide what a request costs by itself.
const (
	shortRequest = `{"model":"bench-model","messages":[{"role":"user","content":"Tell me about the number 123456000100017, please."}],"stream":false,` +
		`"max_tokens":2,"seed":123456000100017,"pace_us":0,"first_us":0}`
	shortAnswer = `{"id":"chatcmpl-0000704a8f2b1c31","object":"chat.completion","created":1764460800,"model":"bench-model","choices":[{"index":0,"message":` +
		`{"role":"assistant","content":" two tokens"},"logprobs":null,"finish_reason":"length"}],"usage":{"prompt_tokens":12,"total_tokens":14,"completion_tokens":2}}`
	shortRequestHead = "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:41234\r\nContent-Type: application/json\r\nAccept: */*\r\n" +
		"Authorization: Bearer none\r\nContent-Length: 193\r\n\r\n"
	shortAnswerHead = "HTTP/1.1 200 OK\r\ndate: Mon, 30 Nov 2026 00:00:00 GMT\r\nserver: uvicorn\r\ncontent-type: application/json\r\ncontent-length: 303\r\n\r\n"
)

func BenchmarkShort(b *testing.B) {
	var (
		request  RequestHead
		response ResponseHead
		peek     Peeked
		info     AnswerInfo
	)
	head, answerHead, body, answer := []byte(shortRequestHead), []byte(shortAnswerHead), []byte(shortRequest), []byte(shortAnswer)
	for _, part := range []struct {
		name string
		run  func() error
	}{
		{"head", func() error { request.Reset(); _, err := request.Parse(head); return err }},
		{"peek", func() error { return peek.Peek(body) }},
		{"answerHead", func() error { response.Reset(); _, err := response.Parse(answerHead); return err }},
		{"answer", func() error { ClassifyAnswer(DialectOpenAI, answer, &info); return nil }},
	} {
		b.Run(part.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := part.run(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
