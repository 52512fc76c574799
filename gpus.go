package main

import (
	"fmt"
	"os/exec"

	"ramjet/config"
	"ramjet/gpu"
)

// gpuOptions are the sources of GPU figures and the engines that run on the
// GPUs: nvidia-smi where this machine has one, and the exporters.
func gpuOptions(cfg *config.Config) (gpu.Options, error) {
	o := gpu.Options{Off: cfg.GPU.Source == "off"}
	for i := range cfg.Engines {
		e := &cfg.Engines[i]
		o.Owners = append(o.Owners, gpu.Owner{Engine: e.Name, Host: e.Target.Hostname(), GPUs: e.GPUs})
	}
	if o.Off {
		return o, nil
	}
	if path, err := exec.LookPath("nvidia-smi"); err == nil {
		o.Sources = append(o.Sources, gpu.NewSMI(path))
	}
	for _, address := range cfg.GPU.DCGM {
		d, err := gpu.NewDCGM(address, config.ForbiddenAddr)
		if err != nil {
			return o, fmt.Errorf("gpu.dcgm: %w", err)
		}
		o.Sources = append(o.Sources, d)
	}
	return o, nil
}

// newGPUs makes the view of the GPUs; its sources start with Run.
func (a *app) newGPUs(cfg *config.Config) error {
	o, err := gpuOptions(cfg)
	if err == nil {
		a.gpus = gpu.New(o, a.log)
	}
	return err
}
