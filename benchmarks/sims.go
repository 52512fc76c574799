package benchmarks

import (
	"fmt"
	"path/filepath"
	"strconv"
	"time"
)

// simSpec is how simulated engines are started.
type simSpec struct {
	profile string // standard or mtp
	speed   int    // times the calibrated speed of the reference engines
	events  bool   // publish KV-cache events, which is what exact routing lives on
	block   int    // tokens of a KV block; 0 = 16
	blocks  int    // of KV cache; 0 = as many as hold every prompt of a call
}

// Simulated engines must hold every prompt of a call, however long: 300,000 blocks of 16 tokens.
const (
	simBlocks = 300_000
	simLength = 4_000_000 // tokens of one prompt
)

// startSimulated starts one simulated engine of the binary under test, with one P as the fake engines have.
func (b *bench) startSimulated(s simSpec) (*process, string, error) {
	address, err := freePort()
	if err != nil {
		return nil, "", err
	}
	block, blocks := s.block, s.blocks
	if block == 0 {
		block = 16
	}
	if blocks == 0 {
		blocks = simBlocks
	}
	argv := []string{
		"env", "GOMAXPROCS=1", b.cfg.Binary, "sim", "--listen", address, "--model", Model, "--profile", s.profile, "--speed", strconv.Itoa(s.speed),
		"--block-tokens", strconv.Itoa(block), "--kv-blocks", strconv.Itoa(blocks), "--max-model-len", strconv.Itoa(simLength),
	}
	if s.events {
		for _, flag := range []string{"--events", "--replay"} {
			port, err := freePort()
			if err != nil {
				return nil, "", err
			}
			argv = append(argv, flag, "tcp://*:"+portOf(port)) // with a host, vLLM's publisher connects instead of binding
		}
	}
	p, err := startProcess(b.dir, "sim-"+portOf(address), argv...)
	if err != nil {
		return nil, "", err
	}
	if err := p.wait("a simulated engine", 15*time.Second, func() bool { return answers200("http://" + address + "/health") }); err != nil {
		p.stop()
		return nil, "", err
	}
	return p, address, nil
}

// simulated starts engines and returns their addresses and what stops them all.
func (b *bench) simulated(specs ...simSpec) (addresses []string, stop func(), err error) {
	var running []*process
	stop = func() {
		for _, p := range running {
			p.stop()
		}
	}
	for _, s := range specs {
		p, address, err := b.startSimulated(s)
		if err != nil {
			stop()
			return nil, nil, err
		}
		running, addresses = append(running, p), append(addresses, address)
	}
	return addresses, stop, nil
}

// simulatedModel writes tokenizer and template of the simulated engines' model, once, and returns their folder.
func (b *bench) simulatedModel() (string, error) {
	dir := filepath.Join(b.dir, "model")
	if err := quietly(b.ctx, b.cfg.Binary, "sim", "--write-model", dir); err != nil {
		return "", fmt.Errorf("cannot write a tokenizer: %w", err)
	}
	return dir, nil
}
