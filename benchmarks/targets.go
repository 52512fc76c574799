package benchmarks

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Names of targets.
const (
	Direct = "direct" // no proxy: the load generator spreads its connections over the engines
	Nginx  = "nginx"  // the reference
)

// target is a way to the engines that the load generator can take.
type target struct {
	name      string
	addresses []string
	process   *process // nil for direct
	pids      []int    // the process and its workers
	admin     string   // Ramjet's admin port, else empty
}

func (t *target) stop() {
	if t != nil && t.process != nil {
		t.process.stop()
	}
}

// adopt notes the workers that a proxy has started.
func (t *target) adopt() (err error) {
	t.pids, err = family(t.process.pid())
	return err
}

// starter starts a fresh instance of a proxy in front of engines, with its files in dir.
type starter func(dir string, engines []string) (*target, error)

// nginxWorkers is the number of cores of the machines that this is run on, as `worker_processes auto` would choose.
const nginxWorkers = 2

// nginxConf is nginx as a careful operator sets it up in front of vLLM: no buffering of answers, prompts kept in memory
// instead of a file, keep-alive to the engines with an idle time below uvicorn's 5 s, no access log.
const nginxConf = `%[1]sdaemon off;
worker_processes %[2]d;
worker_rlimit_nofile %[3]d;
pid %[4]s/nginx.pid;
error_log %[4]s/error.log crit;
events { worker_connections %[3]d; }
http {
  access_log off;
  client_body_temp_path %[4]s/body;
  proxy_temp_path %[4]s/proxy;
  fastcgi_temp_path %[4]s/fastcgi;
  uwsgi_temp_path %[4]s/uwsgi;
  scgi_temp_path %[4]s/scgi;
  client_max_body_size 64m;
  client_body_buffer_size 4m;
  keepalive_requests 1000000000;
  upstream engines {
%[5]s    keepalive 512;
    keepalive_requests 1000000000;
    keepalive_timeout 4s;
  }
  server {
    listen %[6]s backlog=16384;
    location / {
      proxy_pass http://engines;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $host;
      proxy_buffering off;
      proxy_read_timeout 3600s;
      proxy_send_timeout 3600s;
    }
  }
}
`

// nginxStarter runs the nginx at path under the given name.
func nginxStarter(path, name string, descriptors uint64) starter {
	return func(dir string, engines []string) (*target, error) {
		address, err := freePort()
		if err != nil {
			return nil, err
		}
		var servers strings.Builder
		for _, e := range engines {
			_, _ = fmt.Fprintf(&servers, "    server %s;\n", e)
		}
		user := ""
		if os.Geteuid() == 0 {
			user = "user root;\n" // the workers must reach the temporary folder
		}
		conf := filepath.Join(dir, "nginx.conf")
		text := fmt.Sprintf(nginxConf, user, nginxWorkers, descriptors, dir, servers.String(), address)
		if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
			return nil, fmt.Errorf("cannot configure nginx: %w", err)
		}
		p, err := startProcess(dir, name, path, "-p", dir, "-e", filepath.Join(dir, "error.log"), "-c", conf)
		if err != nil {
			return nil, err
		}
		t := &target{name: name, addresses: []string{address}, process: p}
		return t.settle(func() bool { return answers200("http://" + address + "/health") })
	}
}

// settle waits until the target serves and notes its workers; it stops the target if it does not serve.
func (t *target) settle(ready func() bool) (*target, error) {
	err := t.process.wait(t.name, 15*time.Second, ready)
	if err == nil {
		err = t.adopt()
	}
	if err != nil {
		t.stop()
		return nil, err
	}
	return t, nil
}

// ramjetStarter runs the built binary with its defaults: log, metrics and leases on.
func ramjetStarter(binary, name string, extra ...string) starter {
	return ramjetBefore(nil, binary, name, extra...)
}

// ramjetBefore is ramjetStarter with more keys for the engines, like ",events=off", by their order and around again.
func ramjetBefore(keys []string, binary, name string, extra ...string) starter {
	return func(dir string, engines []string) (*target, error) {
		ports := filepath.Join(dir, "ports")
		if err := os.RemoveAll(ports); err != nil {
			return nil, err
		}
		argv := []string{binary, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--port-file", ports}
		for i, e := range engines {
			argv = append(argv, "--engine", fmt.Sprintf("%c=http://%s", 'a'+i, e))
			if len(keys) > 0 {
				argv[len(argv)-1] += keys[i%len(keys)]
			}
		}
		p, err := startProcess(dir, name, append(argv, extra...)...)
		if err != nil {
			return nil, err
		}
		t := &target{name: name, process: p}
		return t.settle(func() bool {
			public, admin := readPorts(ports)
			t.addresses, t.admin = []string{public}, admin
			return public != "" && admin != "" && answers200("http://"+admin+"/readyz")
		})
	}
}

// readPorts reads a port file; both are empty until it is complete.
func readPorts(name string) (public, admin string) {
	b, err := os.ReadFile(name)
	if err != nil {
		return "", ""
	}
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "public":
			public = value
		case "admin":
			admin = value
		}
	}
	return public, admin
}

// commandStarter runs any proxy: {listen}, {port}, {a}, {b} and {dir} in the words of command are replaced by the address
// to listen on, its port alone, the two engines and a folder for files.
func commandStarter(command, name string) starter {
	return func(dir string, engines []string) (*target, error) {
		address, err := freePort()
		if err != nil {
			return nil, err
		}
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		words := []string{"{listen}", address, "{port}", port, "{dir}", dir}
		for i, e := range engines {
			words = append(words, fmt.Sprintf("{%c}", 'a'+i), e)
		}
		argv := strings.Fields(command)
		for i := range argv {
			argv[i] = strings.NewReplacer(words...).Replace(argv[i])
		}
		p, err := startProcess(dir, name, argv...)
		if err != nil {
			return nil, err
		}
		t := &target{name: name, addresses: []string{address}, process: p}
		return t.settle(func() bool { return answers200("http://" + address + "/health") })
	}
}

// haproxyConf is HAProxy with two threads, no delay and connections to the engines reused.
const haproxyConf = `global
  nbthread 2
  maxconn %[1]d
defaults
  mode http
  option http-no-delay
  http-reuse always
  timeout connect 5s
  timeout client 3600s
  timeout server 3600s
  timeout http-keep-alive 60s
frontend public
  bind %[2]s
  default_backend engines
backend engines
  balance roundrobin
%[3]s`

func haproxyStarter(path string, descriptors uint64) starter {
	return func(dir string, engines []string) (*target, error) {
		address, err := freePort()
		if err != nil {
			return nil, err
		}
		var servers strings.Builder
		for i, e := range engines {
			_, _ = fmt.Fprintf(&servers, "  server e%d %s pool-purge-delay 4s\n", i, e)
		}
		conf := filepath.Join(dir, "haproxy.cfg")
		// HAProxy needs two descriptors a connection and some of its own.
		text := fmt.Sprintf(haproxyConf, descriptors/2-50, address, servers.String())
		if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
			return nil, fmt.Errorf("cannot configure haproxy: %w", err)
		}
		p, err := startProcess(dir, "haproxy", path, "-f", conf, "-db")
		if err != nil {
			return nil, err
		}
		t := &target{name: "haproxy", addresses: []string{address}, process: p}
		return t.settle(func() bool { return answers200("http://" + address + "/health") })
	}
}
