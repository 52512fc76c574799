package vllm

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestShippedFlags: every command line that a shipped compose file or Kubernetes manifest gives to vLLM is read by the
// real vLLM's argument parser; lines with a typo are not, so that the test can fail.
func TestShippedFlags(t *testing.T) {
	dir := installed(t)
	lines := map[string][]string{}
	composeCommands(t, lines)
	manifestCommands(t, lines)
	if len(lines) < 6 {
		t.Fatalf("only %d command lines of vLLM are shipped", len(lines))
	}
	wrong := map[string][]string{
		"unknown flag":         {"m", "--enable-prefix-cachin", "--enable-prompt-token-detail"},
		"unknown event key":    {"m", `--kv-events-config={"enable_kv_cache_events":true,"replay":"tcp://*:5558"}`},
		"unknown draft key":    {"m", `--speculative-config={"method":"mtp","num_speculative_token":3}`},
		"unknown tool parser":  {"m", "--enable-auto-tool-choice", "--tool-call-parser=qwen33_coder"},
		"unknown reasoning":    {"m", "--reasoning-parser=qwen33"},
		"unknown engram field": {"m", `--engram-config={"cpu_ofload":true}`},
	}
	for name, line := range wrong {
		lines[name] = line
	}
	input, err := json.Marshal(lines)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(dir, "venv", "bin", "python"), filepath.Join("..", "..", "scripts", "vllm-parse.py"))
	cmd.Env = append(os.Environ(), "HF_HUB_OFFLINE=1", "VLLM_NO_USAGE_STATS=1")
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("vllm-parse.py: %v\n%s", err, errs.String())
	}
	var said map[string]*string
	if err := json.Unmarshal(out.Bytes(), &said); err != nil {
		t.Fatalf("vllm-parse.py printed %q: %v", out.String(), err)
	}
	for name := range lines {
		complaint, asked := said[name]
		_, isWrong := wrong[name]
		switch {
		case !asked:
			t.Errorf("%s was not read", name)
		case isWrong && complaint == nil:
			t.Errorf("vLLM accepts %s: %v", name, lines[name])
		case !isWrong && complaint != nil:
			t.Errorf("vLLM refuses %s: %s", name, *complaint)
		}
	}
}

// composeCommands adds the command of each service that runs vLLM.
func composeCommands(t *testing.T, lines map[string][]string) {
	t.Helper()
	paths, err := filepath.Glob("../../deploy/compose/*/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		var file struct {
			Services map[string]struct {
				Image   string
				Command []string
			}
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(text, &file); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for name, s := range file.Services {
			if strings.HasPrefix(s.Image, "vllm/") {
				lines[path+" "+name] = s.Command
			}
		}
	}
}

// manifestCommands adds the arguments of each container that runs vLLM.
func manifestCommands(t *testing.T, lines map[string][]string) {
	t.Helper()
	f, err := os.Open("../../deploy/kubernetes/vllm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for d := yaml.NewDecoder(f); ; {
		var m struct {
			Metadata struct{ Name string }
			Spec     struct {
				Template struct {
					Spec struct {
						Containers []struct {
							Image string
							Args  []string
						}
					}
				}
			}
		}
		err := d.Decode(&m)
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range m.Spec.Template.Spec.Containers {
			if strings.HasPrefix(c.Image, "vllm/") {
				lines["kubernetes "+m.Metadata.Name] = c.Args
			}
		}
	}
}
