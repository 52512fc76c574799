package config

import (
	"net/url"
	"time"
)

// Config is the effective settings of one Ramjet process. Durations and byte
// counts are plain numbers here; their units exist only in texts. Where a
// comment says "0 = none", zero switches the limit off.
//
// Tags: key is the name in the file; default, min, max are texts as a user
// would write them; words is the closed list of values; positive refuses 0;
// short is a second name of the flag; reload:"restart" marks what a reload
// cannot change in a running process; help is the line of --help.
type Config struct {
	// Listen holds the public addresses: host:port or unix:///path.
	Listen []string `key:"listen" kind:"listen" default:":8000" reload:"restart" help:"public address, host:port or unix:///path; several allowed"`
	Admin  Admin    `key:"admin"`
	// Engines is never empty unless LoadOptions.AllowNoEngines was set; names
	// are unique, order is the user's.
	Engines  []Engine `key:"engines"`
	Model    Model    `key:"model"`
	Tokens   Tokens   `key:"tokens"`
	Handoff  Handoff  `key:"handoff"`
	Route    Route    `key:"route"`
	Health   Health   `key:"health"`
	Eject    Eject    `key:"eject"`
	Timeouts Timeouts `key:"timeouts"`
	Limits   Limits   `key:"limits"`
	// Usage is pass or inject.
	Usage string `key:"usage" words:"pass|inject" default:"pass" help:"inject asks the engine for token usage when the client did not, and takes the extra event out again"`
	// Relay is verbatim or stream. Outside Linux only stream exists.
	Relay   string  `key:"relay" words:"verbatim|stream" default:"verbatim" reload:"restart" help:"how answers are passed on: the engine's bytes as they are, or through the server library's body stream"`
	Headers Headers `key:"headers"`
	Paths   Paths   `key:"paths"`
	GPU     GPU     `key:"gpu"`
	Journal Journal `key:"journal"`
	TLS     TLS     `key:"tls"`
	Auth    Auth    `key:"auth"`
	Log     Log     `key:"log"`

	// Warnings are worth a line at start and stop nothing.
	Warnings Problems

	file    string            // the YAML file, "" for none
	origins map[string]origin // by key; absent = default
	shown   map[string]any    // what a dump shows in place of a value, by key
}

// Admin is the operators' port.
type Admin struct {
	Listen    string `key:"listen" kind:"listen" default:"127.0.0.1:9900" short:"admin" reload:"restart" help:"address of the admin port: page, metrics, JSON API"`
	TokenFile string `key:"token_file" kind:"file" help:"file with the bearer token that mutations and pprof ask for off loopback"`
}

// Engine is one vLLM replica.
type Engine struct {
	Name string `key:"name" kind:"name" help:"unique name, [a-z0-9-]{1,32}"`
	// URL is scheme://host[:port] without a trailing slash; Target is the same,
	// parsed, and must not be written to.
	URL     string   `key:"url" kind:"engine-url" help:"http or https address without a path"`
	Target  *url.URL `key:"-"`
	Profile string   `key:"profile" words:"mtp|standard|none" default:"none" help:"how it decodes: several tokens ahead, plainly, or unknown"`
	// Events and Replay are auto, off, tcp://host:port (connect) or tcp://*:port
	// (bind, for an engine that connects out).
	Events     string `key:"events" kind:"endpoint" default:"auto" help:"its KV event socket: auto, off, tcp://host:port, or tcp://*:port to bind"`
	Replay     string `key:"replay" kind:"endpoint" default:"auto" help:"its replay socket, written like events"`
	Topic      string `key:"topic" help:"subscription prefix of the event socket"`
	APIKeyFile string `key:"api_key_file" kind:"file" help:"file with the key sent to it instead of the client's"`
	InFlight   int    `key:"in_flight" default:"0" min:"0" help:"most requests at once, 0 = no limit"`
	GPUs       []int  `key:"gpus" kind:"gpus" help:"indexes of its GPUs, as 0-3 or 0,2"`

	at      origin
	origins map[string]origin
	shown   map[string]any
}

// Model renames models.
type Model struct {
	// Aliases maps a name that clients use to one that engines serve.
	Aliases map[string]string `key:"aliases" help:"names that clients may use for a served model, alias=model"`
}

// Tokens is where prompts' token ids come from.
type Tokens struct {
	Source       string        `key:"source" words:"auto|off|engine|local" default:"auto" reload:"restart" help:"where token ids come from; auto = path, else the local Hugging Face cache, else the engines"`
	Path         string        `key:"path" kind:"file" short:"tokenizer" reload:"restart" help:"tokenizer.json, or a folder that holds it"`
	ChatTemplate string        `key:"chat_template" kind:"file" reload:"restart" help:"file with the chat template, instead of the tokenizer's own"`
	Cache        int64         `key:"cache" kind:"size" default:"256MiB" min:"64KiB" reload:"restart" help:"memory for the token ids of known messages"`
	MaxBytes     int64         `key:"max_bytes" kind:"size" default:"8MiB" positive:"true" reload:"restart" help:"longer request bodies are not tokenized"`
	MaxTime      time.Duration `key:"max_time" default:"20ms" positive:"true" reload:"restart" help:"longest time spent on the ids of one request"`
}

// Handoff is whether proven token ids are given to engines.
type Handoff struct {
	Mode      string `key:"mode" words:"off|auto" default:"off" help:"give proven token ids to the engine, so that it need not tokenize"`
	MinTokens int    `key:"min_tokens" default:"2048" min:"0" help:"shorter prompts are not handed over"`
}

// Route is how an engine is chosen.
type Route struct {
	Policy           string `key:"policy" words:"latency|least-tokens|round-robin|session" default:"latency" help:"how the engine of a request is chosen"`
	Profile          string `key:"profile" words:"rule|learned|off" default:"rule" noun:"profile mode" help:"how decoding profiles enter the choice"`
	ProfileThreshold int    `key:"profile_threshold" default:"256" min:"0" help:"output caps up to this many tokens prefer an mtp engine"`
	Exact            Exact  `key:"exact" kind:"exact" default:"100%" short:"exact" help:"share of sessions routed by exact residency: off, shadow, or N%"`
	CohortKeyFile    string `key:"cohort_key_file" kind:"file" help:"file with a key that draws the sessions of the share; without it the key is fixed"`
	// Tie is the band in which costs count as equal, together with 2 %.
	Tie         time.Duration `key:"tie" default:"20ms" min:"0" help:"predicted costs closer than this count as equal"`
	DelayWeight float64       `key:"delay_weight" default:"0" min:"0" help:"weight of the delay caused to others; 0 is best for the tail, 0.1 for the mean"`
	// MemoryTokens is the horizon of the approximate memory of one engine in
	// tokens; 0 = auto, the engine's KV capacity.
	MemoryTokens int `key:"memory_tokens" kind:"auto-int" default:"auto" help:"horizon of the approximate memory per engine, in tokens"`
}

// Health is the active check. Its durations have no floor but 0, so that tests
// can shorten them.
type Health struct {
	Interval  time.Duration `key:"interval" default:"2s" positive:"true" help:"time between two checks of an engine"`
	Timeout   time.Duration `key:"timeout" default:"1s" positive:"true" help:"time a check may take"`
	Successes int           `key:"successes" default:"3" min:"1" help:"checks in a row that a new or restarted engine must pass"`
	Stable    time.Duration `key:"stable" default:"30s" min:"0" help:"time since the first of them before it takes traffic"`
	SlowStart time.Duration `key:"slow_start" default:"30s" min:"0" help:"time over which its share then grows"`
	Failures  int           `key:"failures" default:"3" min:"1" help:"failed checks in a row that take an engine out"`
	Stall     time.Duration `key:"stall" default:"60s" positive:"true" help:"silence of every running stream after which an engine counts as stalled"`
}

// Eject is the passive check.
type Eject struct {
	After int           `key:"after" default:"5" min:"1" help:"own failures in a row that eject an engine"`
	Base  time.Duration `key:"base" default:"10s" positive:"true" help:"time of the first ejection; the n-th lasts n times as long"`
	Max   time.Duration `key:"max" default:"300s" positive:"true" help:"longest ejection"`
}

// Timeouts are the waits, each for itself; 0 = none.
type Timeouts struct {
	Dial         time.Duration `key:"dial" default:"1s" min:"0" help:"resolving and connecting to an engine, 0 = none"`
	Head         time.Duration `key:"head" default:"0" min:"0" help:"until the engine's response head, 0 = none"`
	FirstEvent   time.Duration `key:"first_event" default:"0" min:"0" help:"from the head to the first generated event, 0 = none"`
	EventGap     time.Duration `key:"event_gap" default:"0" min:"0" help:"between two generated events, 0 = none"`
	Total        time.Duration `key:"total" default:"0" min:"0" help:"a whole request, 0 = none"`
	ClientHeader time.Duration `key:"client_header" default:"10s" min:"0" reload:"restart" help:"until a client's request head is complete, 0 = none"`
	// ClientBodyRate is in bytes per second, averaged since the head.
	ClientBodyRate int64         `key:"client_body_rate" kind:"rate" default:"16KiB" min:"0" help:"least rate of a request body per second, judged from 2 s on, 0 = none"`
	ClientWrite    time.Duration `key:"client_write" default:"60s" min:"0" help:"a client that takes nothing of its answer for this long is dropped, 0 = none"`
	Drain          time.Duration `key:"drain" default:"120s" min:"0" help:"time that running requests get at a stop, 0 = none"`
}

// Limits bound what clients can make the process hold. Sizes are in bytes.
type Limits struct {
	Body        int64         `key:"body" kind:"size" default:"64MiB" positive:"true" help:"largest request body"`
	BodyMemory  int64         `key:"body_memory" kind:"size" default:"1GiB" positive:"true" reload:"restart" help:"request bodies held at once; beyond it reading pauses"`
	Header      int64         `key:"header" kind:"size" default:"32KiB" min:"1KiB" max:"16MiB" reload:"restart" help:"largest request head"`
	Connections int           `key:"connections" default:"0" min:"0" reload:"restart" help:"client connections at once, 0 = no limit"`
	Queue       int           `key:"queue" default:"0" min:"0" help:"requests that may wait for an engine below its in_flight limit, 0 = none wait"`
	QueueWait   time.Duration `key:"queue_wait" default:"30s" positive:"true" help:"longest wait in that queue"`
}

// Headers are the response headers that Ramjet adds.
type Headers struct {
	XRamjet      bool `key:"x_ramjet" default:"true" help:"add the X-Ramjet headers to answers"`
	ServerTiming bool `key:"server_timing" default:"true" help:"add Server-Timing to answers"`
}

// Paths opens engine paths that are closed by default.
type Paths struct {
	Allow []string `key:"allow" kind:"path" help:"extra engine paths that may be reached, each exact"`
}

// GPU is where GPU samples come from.
type GPU struct {
	Source string   `key:"source" words:"auto|off" default:"auto" help:"auto = nvidia-smi when present, and the DCGM exporters"`
	DCGM   []string `key:"dcgm" kind:"http-url" help:"addresses of DCGM exporters"`
}

// Journal is the record of decisions on disk.
type Journal struct {
	Path     string `key:"path" kind:"folder" reload:"restart" help:"folder of the decision journal; without it none is kept"`
	MaxBytes int64  `key:"max_bytes" kind:"size" default:"256MiB" min:"4KiB" reload:"restart" help:"size at which a journal file is closed"`
	Files    int    `key:"files" default:"8" min:"1" reload:"restart" help:"journal files kept"`
}

// TLS is the certificate of the public port: both or neither.
type TLS struct {
	Cert string `key:"cert" kind:"file" reload:"restart" help:"certificate chain of the public port, PEM; read again when the file changes"`
	Key  string `key:"key" kind:"file" reload:"restart" help:"private key of the certificate, PEM"`
}

// Auth is who may use the public port.
type Auth struct {
	KeysFile string `key:"keys_file" kind:"file" help:"file with the accepted bearer keys, one a line; without it the engines judge"`
}

// Log is the process log.
type Log struct {
	Level  string `key:"level" words:"debug|info|warn|error" default:"info" reload:"restart" help:"least important line that is logged"`
	Format string `key:"format" words:"auto|json|console" default:"auto" reload:"restart" help:"auto = console on a terminal, JSON lines otherwise"`
}

// File returns the path of the YAML file that was read, "" if none.
func (c *Config) File() string { return c.file }

// Source returns where the value of a key came from: "flag --x", "variable
// RAMJET_X", "ramjet.yaml:12" or "default". Keys of engines are written
// engines.NAME.KEY.
func (c *Config) Source(key string) string {
	for _, e := range c.Entries() {
		if e.Key == key {
			return e.Source
		}
	}
	return layerDefault.String()
}

// Default returns the settings that hold when nothing is configured: no
// engines, not validated.
func Default() *Config {
	c := &Config{origins: map[string]origin{}, shown: map[string]any{}}
	for _, l := range leaves {
		l.setDefault(c)
	}
	return c
}
