package wire

// Events as vLLM 0.32 writes them.
const (
	chatDelta = `data: {"id":"chatcmpl-5f1c2b7a9d8e4c3fa1b2c3d4e5f60718","object":"chat.completion.chunk","created":1796012490,"model":"tiny","choices":[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null,"token_ids":null}]}` + "\n\n"
	chatRole  = `data: {"id":"chatcmpl-5f1c2b7a9d8e4c3fa1b2c3d4e5f60718","object":"chat.completion.chunk","created":1796012490,"model":"tiny","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":null}` + "\n\n"
	chatStop  = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"tiny","choices":[{"index":0,"delta":{"content":"."},"logprobs":null,"finish_reason":"stop","stop_reason":null,"token_ids":null}]}` + "\n\n"
	chatAbort = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"tiny","choices":[{"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":"abort","stop_reason":null}]}` + "\n\n"
	chatUsage = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"tiny","choices":[],"usage":{"prompt_tokens":150,"total_tokens":182,"completion_tokens":32,"prompt_tokens_details":{"cached_tokens":128}},"system_fingerprint":"vllm-0.32.0-abc"}` + "\n\n"
	chatError = `data: {"error":{"message":"EngineCore encountered an issue.","type":"InternalServerError","param":null,"code":500}}` + "\n\n"
	textDelta = `data: {"id":"cmpl-1","object":"text_completion","created":1,"model":"tiny","choices":[{"index":0,"text":" foo","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null}]}` + "\n\n"

	responseCreated   = "event: response.created\n" + `data: {"response":{"id":"resp_abc","created_at":1,"incomplete_details":null,"instructions":null,"error":null,"model":"tiny","object":"response","output":[],"status":"in_progress","usage":null},"sequence_number":0,"type":"response.created"}` + "\n\n"
	responseDelta     = "event: response.output_text.delta\n" + `data: {"content_index":0,"delta":" foo","item_id":"msg_1","logprobs":[],"output_index":0,"sequence_number":7,"type":"response.output_text.delta"}` + "\n\n"
	responseCompleted = "event: response.completed\n" + `data: {"response":{"id":"resp_abc","incomplete_details":null,"output":[{"id":"msg_1","content":[{"annotations":[],"text":"foo bar","type":"output_text","logprobs":null}],"role":"assistant","status":"completed","type":"message"}],"status":"completed","usage":{"input_tokens":36,"input_tokens_details":{"cached_tokens":32,"cache_write_tokens":0},"output_tokens":8,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":44}},"sequence_number":12,"type":"response.completed"}` + "\n\n"

	messageStart = "event: message_start\n" + `data: {"type":"message_start","message":{"id":"chatcmpl-1","content":[],"model":"tiny","stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":22,"output_tokens":0}}}` + "\n\n"
	blockDelta   = "event: content_block_delta\n" + `data: {"type":"content_block_delta","delta":{"type":"text_delta","text":" foo"},"index":0}` + "\n\n"
	messageDelta = "event: message_delta\n" + `data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":6,"output_tokens":9,"cache_read_input_tokens":16,"cache_creation_input_tokens":10}}` + "\n\n"
	messageStop  = "event: message_stop\n" + `data: {"type":"message_stop"}` + "\n\n"
)
