package sim

import (
	"fmt"
	"slices"
	"time"
)

// sampling reads the members that chat and completions share into a. caps are
// the names of the output cap, the one that wins first.
func (s *Server) sampling(a *answerRequest, m members, caps ...string) *apiError {
	a.created = time.Now().Unix()
	for _, read := range []func() *apiError{
		func() *apiError { return s.readModel(a, m) },
		func() *apiError { return readStream(a, m) },
		func() *apiError { return readChoices(a, m) },
		func() *apiError { return readCap(a, m, s.core.Options().MaxModelLen, caps) },
		func() *apiError { return readStops(a, m) },
		func() *apiError { return readRanges(m) },
	} {
		if e := read(); e != nil {
			return e
		}
	}
	return nil
}

// readModel takes the model's name; absent it is the first one served.
func (s *Server) readModel(a *answerRequest, m members) (e *apiError) {
	if a.model, e = m.text("model"); e != nil {
		return e
	}
	if a.model == "" {
		a.model = s.models[0]
	}
	if !s.serves(a.model) {
		return modelNotFound(a.model)
	}
	if slices.Contains(s.adapters, a.model) {
		a.job.LoRA = a.model
	}
	if a.job.Session, e = m.text("session_id"); e != nil {
		return e
	}
	a.job.Salt, e = m.text("cache_salt")
	return e
}

// serves says whether name is a model or an adapter of this server.
func (s *Server) serves(name string) bool {
	return slices.Contains(s.models, name) || slices.Contains(s.adapters, name)
}

// readStream takes stream and stream_options; the second needs the first.
func readStream(a *answerRequest, m members) (e *apiError) {
	if a.stream, e = m.flag("stream", false); e != nil {
		return e
	}
	if a.returnIDs, e = m.flag("return_token_ids", false); e != nil {
		return e
	}
	options, e := m.object("stream_options")
	if e != nil || options == nil {
		return e
	}
	if !a.stream {
		e = invalid("value_error", "", "Value error, Stream options can only be defined when `stream=True`.")
		e.param = "stream_options"
		return e
	}
	include, e := options.flag("include_usage", false)
	if e != nil {
		return e
	}
	every, e := options.flag("continuous_usage_stats", false)
	if include {
		a.streamUse = usageLast
		if every {
			a.streamUse = usageEvery
		}
	}
	return e
}

// readChoices takes n and best_of; both mean sequences here.
func readChoices(a *answerRequest, m members) *apiError {
	a.choices = 1
	for _, name := range []string{"n", "best_of"} {
		n, ok, e := m.number(name)
		if e != nil {
			return e
		}
		if !ok {
			continue
		}
		if n < 1 || n > 16384 { // VLLM_MAX_N_SEQUENCES
			return badRequest(name, fmt.Sprintf("%s must be at least 1, got %d.", name, n))
		}
		if name == "n" {
			a.choices = n
		}
	}
	return nil
}

// readCap takes the output cap. Without one the model ends its own turn.
func readCap(a *answerRequest, m members, modelLen int, caps []string) *apiError {
	a.job.NaturalStop = a.job.MaxTokens == 0
	for _, name := range caps {
		n, ok, e := m.number(name)
		if e != nil {
			return e
		}
		if !ok {
			continue
		}
		if n < 1 {
			return badRequest(name, fmt.Sprintf("%s must be at least 1, got %d.", name, n))
		}
		if n > modelLen {
			return badRequest("max_tokens", fmt.Sprintf("max_tokens=%d cannot be greater than max_model_len=%d. Please request fewer output tokens.", n, modelLen))
		}
		a.job.MaxTokens, a.job.NaturalStop = n, false
		break
	}
	n, _, e := m.number("min_tokens")
	if e != nil {
		return e
	}
	a.job.MinTokens = n
	a.job.IgnoreEOS, e = m.flag("ignore_eos", false)
	return e
}

func readStops(a *answerRequest, m members) (e *apiError) {
	if a.stops, e = m.strings("stop"); e != nil {
		return e
	}
	if a.job.StopTokens, e = m.ids("stop_token_ids"); e != nil {
		return e
	}
	a.keepStop, e = m.flag("include_stop_str_in_output", false)
	return e
}

// readRanges refuses what vLLM's sampling parameters refuse. The values have
// no effect: the simulator's text does not depend on them.
func readRanges(m members) *apiError {
	if t, ok, e := m.float("temperature"); e != nil || ok && t < 0 {
		if e != nil {
			return e
		}
		return badRequest("temperature", fmt.Sprintf("temperature must be non-negative, got %v.", t))
	}
	if p, ok, e := m.float("top_p"); e != nil || ok && (p <= 0 || p > 1) {
		if e != nil {
			return e
		}
		return badRequest("top_p", fmt.Sprintf("top_p must be in (0, 1], got %v.", p))
	}
	return nil
}

// fits refuses prompts that leave no room in the model's context.
func (s *Server) fits(a *answerRequest) *apiError {
	limit := s.core.Options().MaxModelLen
	out := max(a.job.MaxTokens, 1)
	for _, p := range a.prompts {
		if len(p) == 0 {
			return badRequest("prompt", "The decoder prompt cannot be empty")
		}
		if len(p)+out > limit {
			return badRequest("input_tokens", fmt.Sprintf("This model's maximum context length is %d tokens. However, you requested %d output tokens and your "+
				"prompt contains at least %d input tokens, for a total of at least %d tokens. Please reduce the length of the input prompt or the number of "+
				"requested output tokens.", limit, out, len(p), len(p)+out))
		}
	}
	return nil
}
