package deploy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

type deployment struct {
	Replicas int
	Strategy struct{ Type string }
	Selector struct {
		MatchLabels map[string]string `yaml:"matchLabels"`
	}
	Template struct {
		Metadata struct{ Labels map[string]string }
		Spec     pod
	}
}

type pod struct {
	TerminationGracePeriodSeconds int   `yaml:"terminationGracePeriodSeconds"`
	AutomountServiceAccountToken  *bool `yaml:"automountServiceAccountToken"`
	SecurityContext               struct {
		RunAsNonRoot bool `yaml:"runAsNonRoot"`
		RunAsUser    int  `yaml:"runAsUser"`
	} `yaml:"securityContext"`
	Containers []container
	Volumes    []struct {
		Name      string
		ConfigMap struct{ Name string } `yaml:"configMap"`
		Secret    struct {
			SecretName string `yaml:"secretName"`
		}
	}
}

type container struct {
	Name, Image string
	Args        []string
	Ports       []containerPort
	Resources   struct {
		Limits map[string]string
	}
	SecurityContext struct {
		AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
		ReadOnlyRootFilesystem   bool  `yaml:"readOnlyRootFilesystem"`
		Capabilities             struct{ Drop []string }
	} `yaml:"securityContext"`
	StartupProbe   *kubernetesProbe `yaml:"startupProbe"`
	LivenessProbe  *kubernetesProbe `yaml:"livenessProbe"`
	ReadinessProbe *kubernetesProbe `yaml:"readinessProbe"`
	Lifecycle      struct {
		PreStop struct{ Sleep struct{ Seconds int } } `yaml:"preStop"`
	}
	VolumeMounts []struct{ Name string } `yaml:"volumeMounts"`
}

type containerPort struct {
	Name          string
	ContainerPort int `yaml:"containerPort"`
}

type kubernetesProbe struct {
	HTTPGet          struct{ Path, Port string } `yaml:"httpGet"`
	PeriodSeconds    int                         `yaml:"periodSeconds"`
	FailureThreshold int                         `yaml:"failureThreshold"`
}

type kubernetesService struct {
	Selector map[string]string
	Ports    []struct {
		Name       string
		Port       int
		TargetPort string `yaml:"targetPort"`
	}
}

// versions that Kubernetes serves today
var apiVersions = map[string]string{
	"ConfigMap": "v1", "Service": "v1", "Deployment": "apps/v1", "PodDisruptionBudget": "policy/v1", "NetworkPolicy": "networking.k8s.io/v1",
}

// TestKubernetesManifests: selectors select, ports and mounts exist, probes ask for what the binary serves, and a pod
// is given the time that its drain takes.
func TestKubernetesManifests(t *testing.T) {
	t.Parallel()
	all := manifests(t)
	deployments, services := map[string]deployment{}, map[string]kubernetesService{}
	for _, m := range all {
		if want, known := apiVersions[m.Kind]; !known || m.APIVersion != want {
			t.Errorf("%s: %s %s is %s, want %s", m.path, m.Kind, m.Metadata.Name, m.APIVersion, want)
		}
		switch m.Kind {
		case "Deployment":
			var d deployment
			if err := m.Spec.Decode(&d); err != nil {
				t.Fatalf("%s: %v", m.Metadata.Name, err)
			}
			deployments[m.Metadata.Name] = d
		case "Service":
			var s kubernetesService
			if err := m.Spec.Decode(&s); err != nil {
				t.Fatalf("%s: %v", m.Metadata.Name, err)
			}
			services[m.Metadata.Name] = s
		}
	}
	for name, d := range deployments {
		checkDeployment(t, name, d, all)
	}
	for name, s := range services {
		checkService(t, name, s, deployments)
	}
	checkRamjetPod(t, deployments["ramjet"], ramjetConfigs(t)["deploy/kubernetes/ramjet.yaml/ramjet"])
	for where, text := range ramjetConfigs(t) {
		if strings.HasPrefix(where, "deploy/kubernetes/") {
			for _, name := range []string{"vllm-a", "vllm-b"} {
				if _, ok := services[name]; !ok || !strings.Contains(text, "http://"+name+":8000") {
					t.Errorf("%s: engine %s has no Service or no place in the configuration", where, name)
				}
			}
		}
	}
}

func checkDeployment(t *testing.T, name string, d deployment, all []manifest) {
	t.Helper()
	for key, value := range d.Selector.MatchLabels {
		if d.Template.Metadata.Labels[key] != value {
			t.Errorf("%s selects %s=%s, which its pods have not", name, key, value)
		}
	}
	spec := d.Template.Spec
	volumes := map[string]bool{}
	for _, v := range spec.Volumes {
		volumes[v.Name] = true
		if c := v.ConfigMap.Name; c != "" && !slices.ContainsFunc(all, func(m manifest) bool { return m.Kind == "ConfigMap" && m.Metadata.Name == c }) {
			t.Errorf("%s mounts the ConfigMap %s, which is none", name, c)
		}
	}
	for _, c := range spec.Containers {
		for _, m := range c.VolumeMounts {
			if !volumes[m.Name] {
				t.Errorf("%s mounts %s, which is no volume", name, m.Name)
			}
		}
		for kind, p := range map[string]*kubernetesProbe{"startup": c.StartupProbe, "liveness": c.LivenessProbe, "readiness": c.ReadinessProbe} {
			if p != nil && !slices.ContainsFunc(c.Ports, func(port containerPort) bool { return port.Name == p.HTTPGet.Port }) {
				t.Errorf("%s: the %s probe asks port %q, which is none", name, kind, p.HTTPGet.Port)
			}
		}
		if strings.HasSuffix(c.Image, ":latest") || !strings.Contains(c.Image, ":") {
			t.Errorf("%s: the image %s is not pinned", name, c.Image)
		}
		if limit := flagOf(c.Args, "shutdown-timeout"); limit != "" && time.Duration(spec.TerminationGracePeriodSeconds)*time.Second <= duration(t, limit+"s") {
			t.Errorf("%s is killed after %d s, before its --shutdown-timeout", name, spec.TerminationGracePeriodSeconds)
		}
	}
}

func checkService(t *testing.T, name string, s kubernetesService, deployments map[string]deployment) {
	t.Helper()
	for d := range maps.Values(deployments) {
		selected := true
		for key, value := range s.Selector {
			selected = selected && d.Template.Metadata.Labels[key] == value
		}
		if !selected {
			continue
		}
		for _, p := range s.Ports {
			want := p.TargetPort
			if want == "" {
				want = p.Name
			}
			if !strings.Contains(fmt.Sprint(d.Template.Spec.Containers[0].Ports), "{"+want+" ") {
				t.Errorf("Service %s leads to port %s, which the pods have not", name, want)
			}
		}
		return
	}
	t.Errorf("Service %s selects no pod: %v", name, s.Selector)
}

// checkRamjetPod: no rights, probes that the binary answers, and time for preStop and drain.
func checkRamjetPod(t *testing.T, d deployment, config string) {
	t.Helper()
	spec, c := d.Template.Spec, d.Template.Spec.Containers[0]
	s := c.SecurityContext
	if !spec.SecurityContext.RunAsNonRoot || spec.SecurityContext.RunAsUser != 65532 || !s.ReadOnlyRootFilesystem || s.AllowPrivilegeEscalation == nil ||
		*s.AllowPrivilegeEscalation || !slices.Equal(s.Capabilities.Drop, []string{"ALL"}) || spec.AutomountServiceAccountToken == nil || *spec.AutomountServiceAccountToken {
		t.Error("the pod runs with more rights than it needs")
	}
	p := startProxy(t, proxyOptions{engines: []*engine{startEngine(t)}})
	p.ready()
	for _, probe := range []*kubernetesProbe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
		if probe == nil || probe.HTTPGet.Port != "admin" {
			t.Fatalf("a probe is missing or does not ask the admin port: %+v", probe)
		}
		if status, body := get("http://" + p.admin + probe.HTTPGet.Path); status != 200 {
			t.Errorf("%s: %d %s", probe.HTTPGet.Path, status, body)
		}
	}
	if c.LivenessProbe.HTTPGet.Path != "/livez" || c.ReadinessProbe.HTTPGet.Path != "/readyz" {
		t.Error("engines that fail are no reason to restart Ramjet, but one to send it nothing")
	}
	_, drain, ok := strings.Cut(config, "timeouts: {drain: ")
	drain, _, _ = strings.Cut(drain, "}")
	if need := time.Duration(c.Lifecycle.PreStop.Sleep.Seconds)*time.Second + duration(t, drain); !ok || time.Duration(spec.TerminationGracePeriodSeconds)*time.Second <= need {
		t.Errorf("the pod is killed after %d s; preStop and drain take %v", spec.TerminationGracePeriodSeconds, need)
	}
	var limits struct {
		Limits struct {
			BodyMemory string `yaml:"body_memory"`
		}
	}
	if err := yaml.Unmarshal([]byte(config), &limits); err != nil {
		t.Fatal(err)
	}
	if 3*size(t, limits.Limits.BodyMemory) > size(t, c.Resources.Limits["memory"]) {
		t.Errorf("bodies may take %s of %s", limits.Limits.BodyMemory, c.Resources.Limits["memory"])
	}
}
