package proxy

import (
	"crypto/tls"
	"fmt"
	"os"
	"sync"
	"time"
)

// LoadTLS returns a configuration that serves the certificate in two PEM files
// and reads them again when they change. A broken new pair leaves the old one
// in use.
func LoadTLS(certFile, keyFile string) (*tls.Config, error) {
	p := &certPair{certFile: certFile, keyFile: keyFile}
	if err := p.load(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.certificate(), nil },
	}, nil
}

// certPair is a certificate and the files that it came from.
type certPair struct {
	certFile, keyFile string

	mu      sync.Mutex // guards what follows
	cert    *tls.Certificate
	changed time.Time // the newer of the files' times when cert was read
	looked  time.Time
}

// certificate returns the present certificate, looking for a newer one at most
// once a second.
func (p *certPair) certificate() *tls.Certificate {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.looked) > time.Second {
		p.looked = time.Now()
		if t := p.newest(); t.After(p.changed) {
			_ = p.loadLocked(t)
		}
	}
	return p.cert
}

func (p *certPair) load() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.loadLocked(p.newest())
}

func (p *certPair) loadLocked(t time.Time) error {
	cert, err := tls.LoadX509KeyPair(p.certFile, p.keyFile)
	if err != nil {
		return fmt.Errorf("cannot load the certificate: %w", err)
	}
	p.cert, p.changed = &cert, t
	return nil
}

func (p *certPair) newest() time.Time {
	var newest time.Time
	for _, name := range []string{p.certFile, p.keyFile} {
		if info, err := os.Stat(name); err == nil && info.ModTime().After(newest) {
			newest = info.ModTime()
		}
	}
	return newest
}
