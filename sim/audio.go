package sim

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"strconv"
	"strings"
	"time"
)

// audio answers POST /v1/audio/transcriptions and translations. There is no
// speech model behind it: the text names size and SHA-256 of the uploaded
// file, so that a test can see that every byte of the body arrived.
func (s *Server) audio(ctx context.Context, w *responder) {
	form, e := readAudio(w.req)
	a := &answerRequest{dialect: dialectOpenAI, choices: 1, created: time.Now().Unix()}
	if e == nil {
		name := appendString(nil, form.fields["model"])
		e = s.readModel(a, members{"model": name})
	}
	if e != nil {
		w.fail(dialectOpenAI, e)
		return
	}
	a.id = "trsc-" + requestID(w.req)
	if strings.HasSuffix(w.req.path, "translations") {
		a.id = "trsl-" + requestID(w.req)
	}
	a.stream = strings.EqualFold(form.fields["stream"], "true")
	if strings.EqualFold(form.fields["stream_include_usage"], "true") {
		a.streamUse = usageLast
	}
	text := "size " + strconv.FormatInt(form.size, 10) + " sha256 " + form.sum
	a.prompts = [][]uint32{Tokenizer().Encode(text)}
	words := strings.SplitAfter(text, " ")
	a.job = Job{MaxTokens: len(words)}
	g := s.begin(ctx, w, a)
	if g == nil {
		return
	}
	defer g.end()
	if a.stream {
		g.streamWords(w, words)
		return
	}
	if g.each(w, func(piece) bool { return true }) {
		b := appendString([]byte(`{"text":`), text)
		b = append(b, `,"usage":{"type":"duration","seconds":`...)
		w.json(200, append(strconv.AppendInt(b, 1+form.size/32000, 10), "}}"...))
	}
}

// streamWords sends one word for each generated token.
func (g *generation) streamWords(w *responder, words []string) {
	head := []byte(`data: {"id":`)
	head = appendString(head, g.a.id)
	head = strconv.AppendInt(append(head, `,"object":"transcription.chunk","created":`...), g.a.created, 10)
	head = appendString(append(head, `,"model":`...), g.a.model)
	at, ended := 0, false
	ok := g.each(w, func(p piece) bool {
		n := min(at+len(p.tokens), len(words))
		b := append([]byte(nil), head...)
		b = appendString(append(b, `,"choices":[{"delta":{"content":`...), strings.Join(words[at:n], ""))
		at = n
		if p.finished {
			reason := FinishStop
			if p.reason == FinishAbort {
				reason = FinishAbort
			}
			b = appendString(append(b, `},"finish_reason":`...), reason)
			b = append(b, `,"stop_reason":null}]}`...)
			ended = true
		} else {
			b = append(b, `}}]}`...)
		}
		w.chunk(append(b, "\n\n"...))
		return true
	})
	if !ok || !ended {
		return
	}
	if g.a.streamUse == usageLast {
		b := append(append([]byte(nil), head...), `,"choices":[],"usage":`...)
		w.chunk(append(g.usageOf(at).append(b, false), "}\n\n"...))
	}
	w.chunk(doneEvent)
	w.end()
}

// audioForm is what is used of a multipart body.
type audioForm struct {
	fields map[string]string
	size   int64 // bytes of the file
	sum    string
}

func readAudio(r *request) (*audioForm, *apiError) {
	media, params, err := mime.ParseMediaType(r.get("content-type"))
	if err != nil || media != "multipart/form-data" {
		return nil, invalid("missing", "file", "Field required")
	}
	form := &audioForm{fields: map[string]string{}}
	parts := multipart.NewReader(bytes.NewReader(r.body), params["boundary"])
	for {
		p, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, &apiError{400, "Bad Request", "There was an error parsing the body", ""}
		}
		if p.FormName() == "file" {
			h := sha256.New()
			if form.size, err = io.Copy(h, p); err == nil {
				form.sum = hex.EncodeToString(h.Sum(nil))
			}
		} else {
			var v []byte
			v, err = io.ReadAll(p)
			form.fields[p.FormName()] = string(v)
		}
		if err != nil {
			return nil, &apiError{400, "Bad Request", "There was an error parsing the body", ""}
		}
	}
	if form.sum == "" {
		return nil, invalid("missing", "file", "Field required")
	}
	return form, nil
}
